//! One file for each thing that users rely on.

mod main_job;
