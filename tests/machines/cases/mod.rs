//! One file for each thing that users rely on.

mod builds;
mod database;
mod main_job;
mod modes;
mod options;
mod reboot;
mod relation;
mod secrets;
mod upgrade;
mod mirror;
mod kill;
