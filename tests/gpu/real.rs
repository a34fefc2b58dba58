//! A GPU of NVIDIA in this machine, if there is one.

use concourse_ci_machine::gpu::decide::{Decision, decide};
use concourse_ci_machine::gpu::said::{Answer, Said};
use concourse_ci_machine::gpu::scan::{Look, scan};
use concourse_ci_machine::gpu::wanted::Wanted;
use concourse_ci_machine::oci::devices::Vendor;
use std::io::Write;
use std::path::Path;
use std::process::Command;

/// What NVML says, and what tasks would get by our own generator: no CDI spec is read. Without NVIDIA's module the test is
/// skipped, which is said past the harness, that keeps what passing tests print.
pub fn real(test: &str, program: &str) -> Option<(Said, Decision)> {
    if !Path::new("/proc/driver/nvidia/version").exists() {
        let why = format!("\nSKIPPED: {test}: no GPU of NVIDIA with its driver here\n");
        std::io::stderr().write_all(why.as_bytes()).unwrap();
        return None;
    }
    let out = Command::new("timeout").args(["-k1", "60", program, "nvml"]).output().unwrap();
    let answer: Answer = serde_json::from_slice(&out.stdout).unwrap();
    let Answer::Said(said) = answer.clone() else { panic!("{answer:?}") };
    let mut facts = scan(&Look::at("/"));
    facts.cdi.clear();
    let wanted = Wanted { vendors: vec![Vendor::Nvidia], ..Wanted::nothing() };
    let decision = decide(&facts, &answer, &wanted, None);
    println!("{}", concourse_ci_machine::gpu::ladder::text(&decision.report.ladders));
    println!("{}", concourse_ci_machine::gpu::summary::text(&decision.devices, &decision.report.inventory));
    println!("{:?}", decision.report.tags);
    Some((said, decision))
}
