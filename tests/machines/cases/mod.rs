//! One file for each thing that users rely on. Tests start by their names in order: what takes longest is best an early one.

mod another_worker;
mod builds;
mod database;
mod gpu;
mod kill;
mod leases;
mod main_job;
mod mirror;
mod modes;
mod options;
mod packages;
mod reboot;
mod relation;
mod secrets;
mod starting;
mod steps;
mod upgrade;
mod work_dir;
mod wrapper;
