//! Finds the guest that this machine can run. Only booting a guest shows that: a `/dev/kvm` that opens may still be unable to run ring-0
//! guest code.

use parking_lot::Mutex;
use std::fs::OpenOptions;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use hyperlight_host::HyperlightError;
use serde::Serialize;

use super::guest::{GuestChoice, GuestKind};
use super::image::{GuestImage, Origin};
use super::kept::{KeptSnapshots, Key};
use crate::error::{Error, Result};
use crate::limits::Limits;
use crate::redact::Redactor;

const DEVICE: &str = "/dev/kvm";

/// The report of `hypervisor()`.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct HypervisorReport {
    /// True if a guest boots here.
    pub available: bool,
    /// The guest that runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub guest: Option<GuestKind>,
    /// Milliseconds to boot the guest and take its snapshot, or to load the kept snapshot.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub boot_ms: Option<f64>,
    /// The origin of the snapshot that runs start from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<Origin>,
    /// The problem, if no guest boots.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// The way to solve the problem.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
    /// A remark about the guest that runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub warning: Option<String>,
}

const RING3_WARNING: &str = "this machine's KVM cannot run ring-0 guests, so the ring-3 guest is used: \
isolation from the host is the same, agent code shares its privilege level with the guest's own kernel";

/// The results of this process's attempts. They depend on the machine and the embedded guests only, so all gateways share them.
static KNOWN: Mutex<Known> = Mutex::new(Known { standard_fails: None, images: Vec::new() });

/// Images that are kept in memory, the last used one last. Gateways with the same limits share an image.
const KEPT_IMAGES: usize = 2;

struct Known {
    /// The failure of the standard guest, which is tried once.
    standard_fails: Option<Failure>,
    images: Vec<GuestImage>,
}

/// The reason why a guest does not boot.
#[derive(Debug, Clone, PartialEq)]
enum Failure {
    NoDevice,
    NoPermission(String),
    /// KVM answers, but cannot run ring-0 guest code: the known way in which KVM-PVM fails.
    CannotRunRing0,
    Other(String),
}

/// Loads or boots the first guest of the choice that runs here.
pub(super) fn boot(choice: GuestChoice, limits: &Limits, kept: Option<&KeptSnapshots>) -> Result<GuestImage> {
    check_device().map_err(no_hypervisor)?;
    // Held while a guest boots: sandboxes that start at the same time wait for one boot.
    let mut known = KNOWN.lock();
    let mut failure = Failure::Other("no guest was tried".to_owned());
    for &kind in choice.candidates() {
        match known.image(kind, choice, limits, kept) {
            Ok(image) => return Ok(image),
            Err(found) => failure = found,
        }
        // Only the known failure is a reason to try the other guest; any other failure must be reported.
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
        choice: GuestChoice,
        limits: &Limits,
        kept: Option<&KeptSnapshots>,
    ) -> std::result::Result<GuestImage, Failure> {
        if let Some(position) = self.images.iter().position(|image| image.is_for(kind, limits)) {
            let image = self.images.remove(position);
            self.images.push(image.clone());
            return Ok(image);
        }
        if let Some(image) = kept.and_then(|kept| load(kind, limits, kept)) {
            self.keep(&image);
            return Ok(image);
        }
        if kind == GuestKind::Standard && choice == GuestChoice::Auto {
            if let Some(failure) = self.standard_fails.clone() {
                return Err(failure);
            }
            // Another process may have seen the failure on this machine with this kernel: that is recorded beside the other guest's
            // snapshot.
            if kept.is_some_and(|kept| kept.standard_fails(&Key::new(GuestKind::Ring3, limits))) {
                self.standard_fails = Some(Failure::CannotRunRing0);
                return Err(Failure::CannotRunRing0);
            }
        }
        let image = GuestImage::boot(kind, limits).map_err(|error| {
            let failure = classify(&error);
            if (kind, &failure) == (GuestKind::Standard, &Failure::CannotRunRing0) {
                self.standard_fails = Some(failure.clone());
            }
            failure
        })?;
        self.keep(&image);
        if let Some(kept) = kept {
            save(&image, Key::new(kind, limits), kept.clone(), self.standard_fails.is_some());
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

/// Loads the image of a kept snapshot, if a VM starts from it.
fn load(kind: GuestKind, limits: &Limits, kept: &KeptSnapshots) -> Option<GuestImage> {
    let started = Instant::now();
    let snapshot = kept.load(&Key::new(kind, limits))?;
    GuestImage::tried(Arc::new(snapshot), kind, limits, started)
        .inspect_err(|error| tracing::warn!(%error, "no VM starts from the kept snapshot: a new one is made"))
        .ok()
}

/// Writes an image's snapshot to disk on a thread of its own.
fn save(image: &GuestImage, key: Key, kept: KeptSnapshots, standard_fails: bool) {
    let image = image.clone();
    let thread = std::thread::Builder::new().name("hyperlight-mcp-keep".to_owned());
    let spawned = thread.spawn(move || match kept.save(&key, &image.snapshot(), standard_fails) {
        Ok(snapshot) => image.is_kept(snapshot),
        Err(error) => tracing::warn!(%error, "the guest's snapshot is not kept: the next process boots anew"),
    });
    if let Err(error) = spawned {
        tracing::warn!(%error, "no thread to keep the guest's snapshot with");
    }
}

fn announce(image: &GuestImage) {
    let (boot_ms, found) = (image.took().as_secs_f64() * 1000.0, image.origin() == Origin::Found);
    match image.kind() {
        GuestKind::Standard => tracing::info!(guest = "standard", boot_ms, found, "guest booted"),
        GuestKind::Ring3 => tracing::warn!(guest = "ring3", boot_ms, found, "guest booted: {RING3_WARNING}"),
    }
}

/// Returns the report on the outcome of [`boot`].
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
    // Hyperlight has no variant for this failure: the guest's first instruction ends in KVM's internal error.
    let text = format!("{error:?}");
    if text.contains("UnexpectedVmExit") && text.contains("InternalError") { Failure::CannotRunRing0 } else { Failure::Other(text) }
}

fn no_hypervisor(failure: Failure) -> Error {
    let (problem, remedy) = match failure {
        Failure::NoDevice => (
            format!("there is no {DEVICE}"),
            "Enable virtualisation in the firmware and load the module kvm_intel or kvm_amd; in a virtual machine, \
             enable nested virtualisation; in a container, pass --device /dev/kvm"
                .to_owned(),
        ),
        Failure::NoPermission(problem) => (
            format!("{DEVICE} may not be opened for reading and writing ({problem})"),
            "Add the user to the group kvm (sudo usermod -aG kvm \"$USER\", then log in again)".to_owned(),
        ),
        Failure::CannotRunRing0 => (
            format!("{DEVICE} is there, but its KVM cannot run the guest"),
            "Leave out the option guest, so that the ring-3 guest is tried as well; where that fails too, use a machine with nested virtualisation, or run \
             the program by scripts/with-hypervisor"
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
