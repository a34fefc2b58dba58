//! One file for each thing that users rely on.

mod database;
mod main_job;
mod modes;
mod options;
mod reboot;
