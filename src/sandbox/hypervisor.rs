//! Finds the guest that this machine can run. For this, a guest must be booted: even if `/dev/kvm` can be opened, KVM may not be able to
//! run ring-0 guest code.

use parking_lot::Mutex;
use std::fs::OpenOptions;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use hyperlight_host::HyperlightError;
use serde::Serialize;

use super::features::GuestFeatures;
use super::guest::{GuestChoice, GuestKind};
use super::image::{GuestImage, Origin};
use super::snapshot_store::{Key, SnapshotStore};
use crate::error::{Error, Result};
use crate::limits::Limits;
use crate::redact::Redactor;

const DEVICE: &str = "/dev/kvm";

/// The report of `hypervisor()`.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct HypervisorReport {
    /// True if a guest boots on this machine.
    pub available: bool,
    /// The guest that boots on this machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub guest: Option<GuestKind>,
    /// The time in milliseconds that was needed to boot the guest and take its snapshot, or to load a snapshot from disk.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub boot_ms: Option<f64>,
    /// The origin of the snapshot from which runs start.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<Origin>,
    /// The reason why no guest boots. `None` if a guest boots.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// The action with which the user can solve the problem.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
    /// A warning about the guest that boots.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub warning: Option<String>,
}

const RING3_WARNING: &str = "this machine's KVM cannot run ring-0 guests, so the ring-3 guest is used; \
isolation from the host is the same, but agent code shares its privilege level with the guest's own kernel";

/// The results of this process's attempts to boot a guest. They depend only on the machine and the embedded guests, so all gateways share
/// them.
static KNOWN: Mutex<Known> = Mutex::new(Known { standard_fails: None, images: Vec::new() });

/// The maximum number of images in memory. The image that was used last is at the end of the list. Gateways with the same limits share an
/// image for each set of features.
const KEPT_IMAGES: usize = 4;

struct Known {
    /// The failure of the standard guest. It is stored so that the standard guest is tried only once.
    standard_fails: Option<Failure>,
    images: Vec<GuestImage>,
}

/// The reason why a guest does not boot.
#[derive(Debug, Clone, PartialEq)]
enum Failure {
    NoDevice,
    NoPermission(String),
    /// KVM exists but cannot run ring-0 guest code. This is the known failure of KVM-PVM.
    CannotRunRing0,
    Other(String),
}

/// Loads or boots the first guest of the choice that this machine can run.
pub(super) fn boot(choice: GuestChoice, features: GuestFeatures, limits: &Limits, kept: Option<&SnapshotStore>) -> Result<GuestImage> {
    check_device().map_err(no_hypervisor)?;
    // The lock is held while a guest boots, so that sandboxes that start concurrently wait for the same boot.
    let mut known = KNOWN.lock();
    let mut failure = Failure::Other("no guest was tried".to_owned());
    for &kind in choice.candidates() {
        match known.image(kind, features, choice, limits, kept) {
            Ok(image) => return Ok(image),
            Err(found) => failure = found,
        }
        // Only the known failure is a reason to try the other guest. Any other failure is reported.
        if failure != Failure::CannotRunRing0 {
            break;
        }
    }
    Err(no_hypervisor(failure))
}

impl Known {
    fn image(
        &mut self,
        kind: GuestKind,
        features: GuestFeatures,
        choice: GuestChoice,
        limits: &Limits,
        kept: Option<&SnapshotStore>,
    ) -> std::result::Result<GuestImage, Failure> {
        if let Some(position) = self.images.iter().position(|image| image.is_for(kind, features, limits)) {
            let image = self.images.remove(position);
            self.images.push(image.clone());
            return Ok(image);
        }
        if let Some(image) = kept.and_then(|kept| load(kind, features, limits, kept)) {
            self.keep(&image);
            return Ok(image);
        }
        if kind == GuestKind::Standard && choice == GuestChoice::Auto {
            if let Some(failure) = self.standard_fails.clone() {
                return Err(failure);
            }
            // Another process on this machine may have seen this failure with the same kernel. In this case, it has recorded the failure
            // with the snapshot of the ring-3 guest.
            if kept
                .is_some_and(|kept| GuestFeatures::ALL.iter().any(|other| kept.standard_fails(&Key::new(GuestKind::Ring3, *other, limits))))
            {
                self.standard_fails = Some(Failure::CannotRunRing0);
                return Err(Failure::CannotRunRing0);
            }
        }
        let image = GuestImage::boot(kind, features, limits).map_err(|error| {
            let failure = classify(&error);
            if (kind, &failure) == (GuestKind::Standard, &Failure::CannotRunRing0) {
                self.standard_fails = Some(failure.clone());
            }
            failure
        })?;
        self.keep(&image);
        if let Some(kept) = kept {
            save(&image, Key::new(kind, features, limits), kept.clone(), self.standard_fails.is_some());
        }
        Ok(image)
    }

    fn keep(&mut self, image: &GuestImage) {
        announce(image);
        if self.images.len() == KEPT_IMAGES {
            self.images.remove(0);
        }
        self.images.push(image.clone());
    }
}

/// Loads the image of a snapshot on disk, if a VM can be started from it.
fn load(kind: GuestKind, features: GuestFeatures, limits: &Limits, kept: &SnapshotStore) -> Option<GuestImage> {
    let started = Instant::now();
    let snapshot = kept.load(&Key::new(kind, features, limits))?;
    GuestImage::tried(Arc::new(snapshot), kind, features, limits, started)
        .inspect_err(|error| tracing::warn!(%error, "no VM starts from the kept snapshot; booting the guest to replace the snapshot"))
        .ok()
}

/// Writes an image's snapshot to disk, on a separate thread.
fn save(image: &GuestImage, key: Key, kept: SnapshotStore, standard_fails: bool) {
    let image = image.clone();
    let thread = std::thread::Builder::new().name("hyperlight-mcp-keep".to_owned());
    let spawned = thread.spawn(move || match kept.save(&key, &image.snapshot(), standard_fails) {
        Ok(snapshot) => image.is_kept(snapshot),
        Err(error) => tracing::warn!(%error, "cannot keep the guest's snapshot; the next process boots the guest again"),
    });
    if let Err(error) = spawned {
        tracing::warn!(%error, "cannot start the thread that keeps the guest's snapshot");
    }
}

fn announce(image: &GuestImage) {
    let (boot_ms, found) = (image.took().as_secs_f64() * 1000.0, image.origin() == Origin::Found);
    match image.kind() {
        GuestKind::Standard => tracing::info!(guest = "standard", boot_ms, found, "guest booted"),
        GuestKind::Ring3 => tracing::warn!(guest = "ring3", boot_ms, found, "guest booted: {RING3_WARNING}"),
    }
}

/// Converts the outcome of [`boot`] to a report.
pub(super) fn report(booted: &Result<GuestImage>, redactor: &Redactor) -> HypervisorReport {
    match booted {
        Ok(image) => HypervisorReport {
            available: true,
            guest: Some(image.kind()),
            boot_ms: Some(image.took().as_secs_f64() * 1000.0),
            snapshot: Some(image.origin()),
            problem: None,
            remedy: None,
            warning: (image.kind() == GuestKind::Ring3).then(|| RING3_WARNING.to_owned()),
        },
        Err(error) => {
            let (problem, remedy) = match error.clone().redacted(redactor) {
                Error::NoHypervisor { problem, remedy } => (problem.to_string(), Some(remedy.to_string())),
                other => (other.to_string(), None),
            };
            HypervisorReport { available: false, guest: None, boot_ms: None, snapshot: None, problem: Some(problem), remedy, warning: None }
        }
    }
}

fn check_device() -> std::result::Result<(), Failure> {
    match OpenOptions::new().read(true).write(true).open(Path::new(DEVICE)) {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == ErrorKind::PermissionDenied => Err(Failure::NoPermission(error.to_string())),
        Err(error) if error.kind() == ErrorKind::NotFound => Err(Failure::NoDevice),
        Err(error) => Err(Failure::Other(format!("{DEVICE} cannot be opened: {error}"))),
    }
}

fn classify(error: &HyperlightError) -> Failure {
    // Hyperlight has no error variant for this failure. It shows as an internal error of KVM at the guest's first instruction.
    let text = format!("{error:?}");
    if text.contains("UnexpectedVmExit") && text.contains("InternalError") { Failure::CannotRunRing0 } else { Failure::Other(text) }
}

fn no_hypervisor(failure: Failure) -> Error {
    let (problem, remedy) = match failure {
        Failure::NoDevice => (
            format!("{DEVICE} does not exist"),
            "Enable virtualisation in the firmware and load the module kvm_intel or kvm_amd; in a virtual machine, \
             enable nested virtualisation; in a container, pass --device /dev/kvm"
                .to_owned(),
        ),
        Failure::NoPermission(problem) => (
            format!("{DEVICE} cannot be opened for reading and writing ({problem})"),
            "Add the user to the group kvm (sudo usermod -aG kvm \"$USER\", then log in again)".to_owned(),
        ),
        Failure::CannotRunRing0 => (
            format!("{DEVICE} exists, but its KVM cannot run the guest"),
            "Leave out the option guest, so that the ring-3 guest is tried as well; if that fails too, use a machine with nested virtualisation, or run \
             the program with scripts/with-hypervisor"
                .to_owned(),
        ),
        Failure::Other(problem) => (format!("the guest does not boot: {problem}"), "See docs/HYPERVISOR.md".to_owned()),
    };
    Error::NoHypervisor { problem: problem.into(), remedy: remedy.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_case_says_what_to_do() {
        for (failure, words) in [
            (Failure::NoDevice, "nested virtualisation"),
            (Failure::NoPermission("Permission denied".into()), "group kvm"),
            (Failure::CannotRunRing0, "with-hypervisor"),
            (Failure::Other("strange".into()), "strange"),
        ] {
            let error = no_hypervisor(failure);
            assert_eq!(error.code(), "ERR_NO_HYPERVISOR");
            assert!(error.to_string().contains(words), "{error}");
        }
    }

    #[test]
    fn only_the_known_failure_lets_the_other_guest_be_tried() {
        let other = HyperlightError::Error("out of memory".into());
        assert!(matches!(classify(&other), Failure::Other(_)));
    }
}
