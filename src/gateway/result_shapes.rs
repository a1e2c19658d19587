//! Learns the shapes (names and types of the fields) of results for tools whose server declares no `outputSchema` (option `learnResults`).
//!
//! Each agent has its own learnt shapes. They are valid for one approval of the server: a revocation, a new approval, or a change of the
//! tool or of the server's entry removes them. The shapes are not part of any digest.

use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::Value as Json;

use super::agent::Identity;
use super::approval_cache::ApprovalRead;
use super::availability::AttachedServers;
use super::core::Core;
use super::granted::Granted;
use super::request::Request;
use crate::catalog::{Learnt, Manifest, Sample, SeenResults};
use crate::redact::Redactor;
use crate::text::sanitise_line;
use crate::trust::ApprovalStatus;

/// Maximum number of an agent's samples that wait in the queue. Further samples are dropped: the results of one tool are mostly alike, so
/// little is lost.
const MAX_WAITING: usize = 16;
/// Maximum total size in bytes of the texts in an agent's waiting samples.
const MAX_WAITING_BYTES: usize = 1_024 * 1_024;
/// Shapes are learnt from each of the first results of a tool, up to this number. Later, only one in this number of results is used,
/// because the shapes of most results are known by then.
const FIRST_RESULTS: u32 = 16;
/// Maximum number of tools whose results are counted. If there are more, counting starts again.
const MAX_COUNTED: usize = 1_000;
/// Maximum length in characters of a name. Longer names are not learnt.
const MAX_NAME_CHARS: usize = 100;

/// The shapes that one agent has learnt.
#[derive(Default)]
pub(super) struct ResultShapes {
    /// The learnt shapes, with the approved manifest for which they are valid. Locked before `waiting`.
    learnt: Mutex<Learnt<Arc<Manifest>>>,
    /// Samples of results from which nothing was learnt yet.
    waiting: Mutex<VecDeque<Waiting>>,
    /// The number of results of each tool, by server and tool.
    counted: Mutex<HashMap<(String, Arc<str>), u32>>,
    /// True while a background task will learn from the samples.
    has_worker: AtomicBool,
}

struct Waiting {
    server: String,
    tool: Arc<str>,
    approved: Arc<Manifest>,
    sample: Sample,
}

/// Returns whether the shape is learnt from the result with this number. The first result of a tool has number 0.
fn is_taken(number: u32) -> bool {
    number < FIRST_RESULTS || number.is_multiple_of(FIRST_RESULTS)
}

impl ResultShapes {
    /// Counts a result. Returns whether the shape of this result is to be learnt.
    fn count(&self, server: &str, tool: &Arc<str>) -> bool {
        let mut counted = self.counted.lock();
        if counted.len() >= MAX_COUNTED {
            counted.clear();
        }
        let number = counted.entry((server.to_owned(), Arc::clone(tool))).or_default();
        let taken = is_taken(*number);
        *number = number.wrapping_add(1);
        taken
    }

    /// Adds a sample. Returns false, without adding it, if the queue is full.
    fn push(&self, one: Waiting) -> bool {
        let mut waiting = self.waiting.lock();
        let bytes: usize = waiting.iter().map(|one| one.sample.text_bytes()).sum();
        let has_place = waiting.len() < MAX_WAITING && bytes + one.sample.text_bytes() <= MAX_WAITING_BYTES;
        if has_place {
            waiting.push_back(one);
        }
        has_place
    }

    /// Learns from all samples that wait. A caller that reads the learnt shapes calls this first, so that the results of all finished calls
    /// are included.
    fn work_off(&self, redactor: &Redactor) {
        let mut learnt = self.learnt.lock();
        loop {
            let next = self.waiting.lock().pop_front();
            let Some(Waiting { server, tool, approved, sample }) = next else { return };
            let mut shape = sample.into_shape();
            // Names are text of the server, so names that need to be cleaned or redacted are not kept.
            shape.retain_names(&|name| sanitise_line(name, MAX_NAME_CHARS) == name && redactor.without_secrets(name) == name);
            learnt.add(&server, &tool, &approved, Arc::ptr_eq, shape);
        }
    }

    /// Removes everything that was learnt about the tools of a server.
    pub(super) fn forget(&self, server: &str) {
        let mut learnt = self.learnt.lock();
        self.waiting.lock().retain(|one| one.server != server);
        self.counted.lock().retain(|(known, _), _| known != server);
        learnt.forget(server);
    }

    /// Removes everything that was learnt about one tool of a server.
    fn forget_tool(&self, server: &str, tool: &str) {
        let mut learnt = self.learnt.lock();
        self.waiting.lock().retain(|one| one.server != server || *one.tool != *tool);
        self.counted.lock().retain(|(known, of), _| known != server || **of != *tool);
        learnt.forget_tool(server, tool);
    }

    /// Removes everything that was learnt, because the agent has ended.
    pub(super) fn forget_all(&self) {
        let mut learnt = self.learnt.lock();
        self.waiting.lock().clear();
        self.counted.lock().clear();
        *learnt = Learnt::default();
    }
}

impl Core {
    /// Returns the approved manifest for which a shape from this request's result would be valid. Returns `None` if nothing is learnt from
    /// the request, because it does not call a tool, because the server declares an `outputSchema` for the tool, or because learning is
    /// off. Reads no file.
    pub(super) fn basis_of_shape(&self, server: &str, request: &Request) -> Option<Arc<Manifest>> {
        let Request::CallTool { tool, .. } = request else { return None };
        if !self.runs.learn_results {
            return None;
        }
        let approved = self.last_approved(&*self.registry.server(server).ok()?)?;
        approved.tool(tool).is_some_and(|tool| tool.output_schema.is_none()).then_some(approved)
    }

    /// Takes a sample of a tool's answer. This takes only a limited time. A background task learns from the sample later, so that the
    /// caller does not wait.
    pub(super) fn learn(&self, identity: &Identity, server: &str, request: &Request, basis: &Arc<Manifest>, answer: &Json) {
        let Request::CallTool { tool, .. } = request else { return };
        if !identity.shapes.count(server, tool) {
            return;
        }
        // If the approval has changed during the call, it is not certain which approval was valid when the server gave the answer.
        let is_same = self.basis_of_shape(server, request).is_some_and(|now| Arc::ptr_eq(&now, basis));
        let (Some(sample), Some(runtime)) = (Sample::of(answer, self.limits.max_response_bytes), self.trust.approval_cache.runtime())
        else {
            return;
        };
        let waiting = Waiting { server: server.to_owned(), tool: Arc::clone(tool), approved: Arc::clone(basis), sample };
        let shapes = &identity.shapes;
        if is_same && !identity.closed.is_cancelled() && shapes.push(waiting) && !shapes.has_worker.swap(true, Ordering::AcqRel) {
            let (shapes, redactor) = (Arc::clone(shapes), Arc::clone(&self.redactor));
            drop(runtime.spawn_blocking(move || {
                // The flag is cleared first, so that a sample that is added after this point starts another background task.
                shapes.has_worker.store(false, Ordering::Release);
                shapes.work_off(&redactor);
            }));
        }
    }

    /// Returns the shapes that an agent has learnt from results of these servers, by the names that the agent's code uses for the servers.
    pub(super) fn seen_results<'a>(
        &self,
        identity: &Identity,
        granted: &Granted,
        attached: &AttachedServers,
        names: impl Iterator<Item = &'a String>,
        read: ApprovalRead,
    ) -> BTreeMap<String, SeenResults> {
        if !self.runs.learn_results {
            return BTreeMap::new();
        }
        identity.shapes.work_off(&self.redactor);
        let known: BTreeSet<String> = identity.shapes.learnt.lock().servers().map(str::to_owned).collect();
        if known.is_empty() {
            return BTreeMap::new();
        }
        let registry_name = |name: &'a String| granted.registry_name(attached.0.get(name).map_or(name.as_str(), String::as_str)).to_owned();
        let seen =
            names.map(|name| (name, registry_name(name))).filter(|(_, server)| known.contains(server)).filter_map(|(name, server)| {
                let definition = self.registry.server(&server).ok()?;
                let Ok(ApprovalStatus::Full(approved)) = self.approval_status_by(&definition, read) else { return None };
                // The lock is taken after the approval was read, because reading may take a long time.
                let seen = identity.shapes.learnt.lock().of(&server, |basis| Arc::ptr_eq(basis, &approved)).collect();
                Some((name.clone(), seen))
            });
        seen.collect()
    }

    /// Removes the shapes of tools whose description by the running server differs from the approved one.
    pub(super) fn forget_shapes(&self, server: &str, tools: &BTreeSet<String>) {
        let agents = self.agents.all();
        for identity in agents.iter().chain([&self.people.operator]) {
            for tool in tools {
                identity.shapes.forget_tool(server, tool);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_many_results_few_are_learnt_from() {
        let shapes = ResultShapes::default();
        let tool: Arc<str> = "t".into();
        let taken = |count: usize| (0..count).filter(|_| shapes.count("s", &tool)).count();
        assert_eq!((taken(16), taken(1_600)), (16, 100));
        shapes.forget("s");
        assert_eq!(taken(3), 3);
        let learnt = (0..5_000).filter(|number: &u32| shapes.count("s", &number.to_string().into())).count();
        assert_eq!(learnt, 5_000, "each is the first of its tool");
        assert!(shapes.counted.lock().len() <= MAX_COUNTED);
    }

    #[test]
    fn samples_that_wait_are_bounded_in_number_and_size() {
        let result = |bytes: usize| serde_json::json!({ "content": [{ "type": "text", "text": format!("[{}]", "1".repeat(bytes)) }] });
        for (bytes, places) in [(10, MAX_WAITING), (200_000, 5)] {
            let shapes = ResultShapes::default();
            let sample = || Sample::of(&result(bytes), usize::MAX).unwrap();
            let push = || shapes.push(Waiting { server: "s".into(), tool: "t".into(), approved: Arc::default(), sample: sample() });
            assert_eq!((0..100).filter(|_| push()).count(), places);
            shapes.forget("s");
            assert!(push());
        }
    }
}
