//! What a new container gets: the policy, the device data and the bundle brought together.

use super::able::able;
use super::bundle::read_json;
use super::devices::{Devices, FORMAT, Mount, Unit};
use super::edit::{Additions, Seen, add, look};
use super::exec::Equipment;
use super::folders::{self, Found};
use super::give::give;
use super::json::Tree;
use super::lease::model::Ask;
use super::lease::{self, Demand};
use super::policy::{Access, DefaultCount, Gpus, Leases, Policy, Steps};
use super::request::{Request, is_task};
use super::{Refusal, report, said};
use std::fs;
use std::path::Path;

/// Adds to a bundle's config.json what its container should have.
///
/// # Errors
/// It should have what it can't; the sentence is for the author of the pipeline.
pub fn equip(config: &mut Tree<'_>, bundle: &Path, policy: Result<&Policy, &String>) -> Result<(), Refusal> {
    let mut seen = look(config);
    let task = is_task(seen.mounts.iter().map(|mount| mount.destination.as_str()));
    let policy = match policy {
        Ok(policy) => policy,
        Err(why) => return without_policy(&seen, task, why),
    };
    let mut additions = Additions::default();
    if policy.folders.steps == Steps::All || policy.folders.steps == Steps::Tasks && task {
        additions.mounts = shared_folders(&policy.folders.root, &seen, bundle)?;
    }
    if task {
        let noted = Equipment::of(config);
        let leased = Leased { bundle, noted: noted.as_ref() };
        gpus(&seen, policy.gpus.as_ref(), &leased, &mut additions).map_err(gpu)?;
    }
    // runc makes no nodes in any user namespace, be it one around the whole worker (an unprivileged LXD machine).
    if additions.nodes.iter().any(|node| node.host != node.path) {
        let map = fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
        seen.user_namespace |= !maps_everybody(&map);
    }
    add(config, &seen, &additions)
}

/// Whether a `uid_map` is that of the first user namespace, as runc tells it.
fn maps_everybody(map: &str) -> bool {
    map.split_whitespace().eq(["0", "0", "4294967295"])
}

/// Says at once what it is about.
fn gpu(refusal: Refusal) -> Refusal {
    Refusal::new(format!("GPU: {refusal}"))
}

/// All but tasks that ask for GPUs run as they would without us.
fn without_policy(seen: &Seen, task: bool, why: &str) -> Result<(), Refusal> {
    if !task {
        return Ok(());
    }
    report::journal(&format!("tasks run without folders and GPUs: the runtime policy can't be used: {why}"));
    match Request::parse(&seen.env).map_err(gpu)?.asked() {
        None => Ok(()),
        Some(asked) => Err(gpu(Refusal::new(format!(
            "the task asks for {asked}, but this worker's runtime policy can't be used ({why}): tell its operator, or \
             take the variable out of the task's params"
        )))),
    }
}

/// The mounts of folders. Neither an image's own files nor a volume of the step in the same place is hidden, nor do they
/// hide the folder: either would be found out late and far from here, so the container does not start and the reason is
/// in the build's log.
fn shared_folders(root: &Path, seen: &Seen, bundle: &Path) -> Result<Vec<Mount>, Refusal> {
    let Found { folders, skipped } = match folders::scan(root) {
        Ok(found) => found,
        Err(e) => {
            return Err(Refusal::new(format!(
                "the worker's folders in {} can't be read: {e}",
                root.display()
            )));
        }
    };
    if !skipped.is_empty() {
        report::journal(&skipped.join("; "));
    }
    if let Some((volume, folders)) = folders::taken(&seen.mounts, root, &folders) {
        return Err(Refusal::new(format!(
            "the step has a volume of its own (an input, an output, a cache) at {volume}, where the worker has {}: give it \
             another path in the pipeline, or have the folder renamed on the worker",
            folders.display()
        )));
    }
    let rootfs = bundle.join(seen.root.as_deref().unwrap_or("rootfs"));
    let hidden = folders::hidden(&rootfs, root, &folders).map_err(|e| {
        Refusal::new(format!(
            "whether the image has files of its own in {} can't be seen ({}): look at what it has there",
            root.display(),
            said(&e)
        ))
    })?;
    if let Some(path) = hidden.first() {
        return Err(Refusal::new(format!(
            "the image has files of its own in {0}, which the worker's folder {0} would hide: move them in the image, or \
             have the folder renamed on the worker",
            path.display()
        )));
    }
    if let Some((folder, why)) = folders::broken(&folders) {
        return Err(Refusal::new(format!(
            "the worker's folder {} can't be mounted ({}): tell its operator",
            folder.path.display(),
            said(&why)
        )));
    }
    Ok(folders.iter().map(folders::Folder::mount).collect())
}

/// What taking units needs to know besides.
struct Leased<'a> {
    bundle: &'a Path,
    /// What the bundle was equipped with already: this is not the first `create`.
    noted: Option<&'a Equipment>,
}

fn gpus(
    seen: &Seen,
    gpus: Option<&Gpus>,
    leased: &Leased<'_>,
    additions: &mut Additions,
) -> Result<(), Refusal> {
    let request = Request::parse(&seen.env)?;
    let Some(gpus) = gpus else {
        return request.asked().map_or(Ok(()), |asked| {
            Err(Refusal::new(format!(
                "the task asks for {asked}, and this worker has no GPU to give: give the step the tags of a worker that \
                 has, or take the variable out of the task's params"
            )))
        });
    };
    let unasked = gpus.access == Access::Exclusive && gpus.leases.default_count != DefaultCount::None;
    if !request.wants(if unasked { Access::Shared } else { gpus.access }) {
        return Ok(());
    }
    let devices = match read_devices(&gpus.devices) {
        Ok(devices) => devices,
        // Who neither asks nor hopes is not stopped by what it does not use.
        Err(why) if request.asked().is_none() && !request.image_hopes() => {
            report::journal(&format!("tasks run without GPUs: {why}"));
            return Ok(());
        }
        Err(why) => {
            return Err(Refusal::new(format!(
                "the worker's list of GPUs can't be used ({why}): tell its operator, or set GPU_COUNT: 0 \
                 in the task's params to run without"
            )));
        }
    };
    let may = |unit: &&Unit| gpus.units.as_ref().is_none_or(|units| units.contains(&unit.id));
    let units: Vec<&Unit> = devices.units.iter().filter(may).collect();
    let there = |id: &&String| devices.units.iter().any(|unit| unit.id == **id);
    let gone: Vec<&str> = gpus.units.iter().flatten().filter(|id| !there(id)).map(String::as_str).collect();
    if !gone.is_empty() {
        report::journal(&format!("tasks get fewer GPUs than were selected: {} not there", gone.join(", ")));
        if units.is_empty() && request.image_hopes() {
            return Err(Refusal::new(format!(
                "the GPUs that this worker gives to tasks are not there ({}): tell its operator, or set GPU_COUNT: 0 in \
                 the task's params to run without",
                gone.join(", ")
            )));
        }
    }
    let request = match gpus.access {
        Access::Exclusive => request.shared_by(gpus.leases.replicas),
        Access::Shared | Access::Request => request,
    };
    let able = able(&seen.env, &devices, &request, gpus.access, &units)?;
    let chosen = match gpus.access {
        Access::Exclusive => own(&request, gpus, &units, &able, leased)?,
        access => request.choose(access, &able)?,
    };
    give(&seen.env, &devices, &chosen, additions)?;
    if let Some(equipment) = additions.equipment.as_mut().filter(|_| gpus.access == Access::Exclusive) {
        equipment.leases = Some(gpus.leases.dir.clone());
    }
    Ok(())
}

/// Units that no other container has, of those that the image is able to use. A bundle that is made a container again
/// keeps those that it has devices of.
fn own<'a>(
    request: &Request,
    gpus: &Gpus,
    units: &[&'a Unit],
    able: &[&Unit],
    leased: &Leased<'_>,
) -> Result<Vec<&'a Unit>, Refusal> {
    let demand = match leased.noted.map(|noted| &noted.units).filter(|units| !units.is_empty()) {
        Some(units) => {
            let ask = Ask { units: units.clone(), count: units.len(), or_fewer: false };
            Some(Demand { asked: units.join(","), ask, or_none: false })
        }
        None => request.demand(&gpus.leases, able)?,
    };
    let Some(demand) = demand else { return Ok(vec![]) };
    // All units: others in line may want those that this image can't use.
    let ids = lease::take(&gpus.leases, units, leased.bundle, &demand)?;
    Ok(units.iter().copied().filter(|unit| ids.contains(&unit.id)).collect())
}

/// Asks at the door of a container that has GPUs: where they are leased, only who has them may start a process there.
/// The container itself says so where the policy can't be read.
///
/// # Errors
/// The GPUs are somebody else's by now.
pub fn enter(equipment: &Equipment, bundle: &Path, policy: Result<&Policy, &String>) -> Result<(), Refusal> {
    if equipment.units.is_empty() {
        return Ok(());
    }
    let known = policy.ok().and_then(|policy| policy.gpus.as_ref());
    let rules = match (known, &equipment.leases) {
        (Some(gpus), _) if gpus.access != Access::Exclusive => return Ok(()),
        (Some(gpus), _) => gpus.leases.clone(),
        (None, Some(dir)) => Leases { dir: dir.clone(), ..Leases::default() },
        (None, None) => return Ok(()),
    };
    // Without them a lease that counts goes on counting, and one that has lapsed is not taken again.
    let devices = known.and_then(|gpus| read_devices(&gpus.devices).ok());
    let units: Vec<&Unit> = devices.iter().flat_map(|devices| &devices.units).collect();
    lease::enter(&rules, &units, bundle, &equipment.units).map_err(gpu)
}

fn read_devices(path: &Path) -> Result<Devices, String> {
    let devices: Devices = read_json(path)?;
    match devices.format {
        FORMAT => Ok(devices),
        other => Err(format!("{}: has format {other}, this wrapper reads {FORMAT}", path.display())),
    }
}

#[cfg(test)]
mod tests {
    use super::maps_everybody;

    #[test]
    fn the_first_user_namespace_maps_everybody() {
        assert!(maps_everybody("         0          0 4294967295\n"));
        for other in ["0 1000000 1000000000", "0 0 65536", "", "0 0 4294967295\n1 1 1"] {
            assert!(!maps_everybody(other), "{other}");
        }
    }
}
