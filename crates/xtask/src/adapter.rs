//! Finds a device to run on, or installs one where the program knows how.

use std::{fs, process::Command};

use crate::{cargo::run, process::Failure};

/// Debian's packages of the Vulkan loader and of Mesa's drivers, the software adapter among them.
const PACKAGES: [&str; 2] = ["libvulkan1", "mesa-vulkan-drivers"];

/// Makes sure that Vulkan has an adapter. Installs Mesa's on Debian and Ubuntu. Metal and DirectX
/// come with their systems.
pub(crate) fn ensure() -> Result<(), Failure> {
    if !cfg!(target_os = "linux") || vulkan_adapters() > 0 {
        return Ok(());
    }
    if !is_debian() {
        return Err(Failure::NoAdapter(
            "no Vulkan adapter found: install your GPU's Vulkan driver, or Mesa's software adapter \
             (the package is called mesa-vulkan-drivers on Fedora, vulkan-swrast on Arch Linux)"
                .into(),
        ));
    }
    eprintln!(
        "No Vulkan adapter found. Installing {} from Debian's packages:",
        PACKAGES.join(", ")
    );
    run(as_root("apt-get").arg("update"))?;
    run(as_root("apt-get").args(["install", "--yes", "--no-install-recommends"]).args(PACKAGES))?;
    match vulkan_adapters() {
        0 => Err(Failure::NoAdapter("still no Vulkan adapter after the installation".into())),
        _ => Ok(()),
    }
}

/// The number of Vulkan's adapters on this machine; 0 if there is no loader.
fn vulkan_adapters() -> usize {
    // SAFETY: the loader is the system's own library, which every Vulkan program trusts. The
    // instance is used only before it is destroyed, and the entry outlives it.
    unsafe {
        let Ok(entry) = ash::Entry::load() else { return 0 };
        let Ok(instance) = entry.create_instance(&ash::vk::InstanceCreateInfo::default(), None)
        else {
            return 0;
        };
        let count = instance.enumerate_physical_devices().map_or(0, |devices| devices.len());
        instance.destroy_instance(None);
        count
    }
}

/// Whether the system is Debian, Ubuntu or derived from them.
fn is_debian() -> bool {
    let release = fs::read_to_string("/etc/os-release").unwrap_or_default();
    release
        .lines()
        .filter_map(|line| line.strip_prefix("ID=").or_else(|| line.strip_prefix("ID_LIKE=")))
        .any(|ids| ids.trim_matches('"').split(' ').any(|id| id == "debian" || id == "ubuntu"))
}

/// A command run as root: directly, or through sudo.
fn as_root(program: &str) -> Command {
    let id = Command::new("id").arg("-u").output();
    let is_root = id.is_ok_and(|id| id.stdout.trim_ascii() == b"0");
    let mut command = Command::new(if is_root { program } else { "sudo" });
    if !is_root {
        command.arg(program);
    }
    command.env("DEBIAN_FRONTEND", "noninteractive");
    command
}
