//! Names of products, from the lists of ids that distributions have; where there is no list, there is no name.

use super::Look;
use crate::gpu::facts::Pci;

const LISTS: [&str; 2] = ["/usr/share/misc/pci.ids", "/usr/share/hwdata/pci.ids"];

/// Names those that have no name yet.
pub fn add(look: &Look, gpus: &mut [Pci]) {
    if gpus.iter().all(|gpu| gpu.name.is_some()) {
        return;
    }
    // Some 1.5 MB, so it is read to its end for once.
    let list = LISTS.iter().find_map(|path| std::fs::read(look.path(path)).ok());
    let list = list.map(|b| String::from_utf8_lossy(&b).into_owned()).unwrap_or_default();
    let amd = look.text("/usr/share/libdrm/amdgpu.ids").unwrap_or_default();
    for gpu in gpus.iter_mut().filter(|gpu| gpu.name.is_none()) {
        let revision = look.number(format!("/sys/bus/pci/devices/{}/revision", gpu.address));
        gpu.name = marketing(&amd, gpu, revision).or_else(|| product(&list, gpu));
    }
}

/// Lines of a product's id, its revision and its name, with commas between them.
fn marketing(list: &str, gpu: &Pci, revision: Option<u64>) -> Option<String> {
    let found = list.lines().find_map(|line| {
        let mut parts = line.split(',').map(str::trim);
        let id = |text: Option<&str>| text.and_then(|t| u64::from_str_radix(t, 16).ok());
        let fits = id(parts.next()) == Some(gpu.device.into()) && id(parts.next()) == revision;
        parts.next().filter(|_| fits)
    });
    found.filter(|_| gpu.vendor == 0x1002 && revision.is_some()).map(str::to_owned)
}

/// Of `GA100 [A100 SXM4 40GB]` what stands in brackets is what is sold.
fn product(list: &str, gpu: &Pci) -> Option<String> {
    let (vendor, device) = (format!("{:04x}  ", gpu.vendor), format!("\t{:04x}  ", gpu.device));
    let mut lines = list.lines().skip_while(|line| !line.starts_with(&vendor)).skip(1);
    let line = lines
        .by_ref()
        .take_while(|line| line.starts_with('\t') || line.starts_with('#'))
        .find_map(|line| line.strip_prefix(&device))?;
    let sold = line.rsplit_once('[').and_then(|(_, rest)| rest.strip_suffix(']'));
    let name = sold.unwrap_or(line).trim();
    let maker = match gpu.vendor {
        0x10de => "NVIDIA",
        0x1002 => "AMD",
        _ => "Intel",
    };
    (!name.is_empty()).then(|| if name.starts_with(maker) { name.into() } else { format!("{maker} {name}") })
}
