//! Computes vectors on a background thread, one text after another: first the questions of searches, then the texts of tools. A separate
//! program does the computation.

use std::collections::{HashSet, VecDeque};
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, MutexGuard};

use super::cache::{self, MAX_VECTORS, Vectors};
use super::package::{self, PACKAGE};
use super::program::Program;
use super::vector::{TextDigest, Vector};

/// The time for which the program keeps running when it has nothing to compute. The program needs about 130 MB of memory.
const IDLE: Duration = Duration::from_mins(10);
/// The maximum number of questions that wait. When another question is added, the oldest is dropped.
const MAX_QUESTIONS: usize = 16;
/// The number of questions whose vectors are kept, for a search that is repeated.
const RECENT_QUESTIONS: usize = 64;
/// The number of failures after which the program is not started again. A text for which the program has failed is not tried again. So if a
/// single text makes the program fail, only the vector of this text is missing.
const MAX_FAILURES: usize = 3;
/// The number of new vectors after which the file is written, even if further texts wait.
const SAVE_AFTER: usize = 256;

/// Options of an [`Embedder`].
pub struct EmbedderOptions {
    /// The folder of the package with the program. If `None`, the package is used that was installed together with the package of `start`.
    pub package: Option<PathBuf>,
    /// The folder of the addon.
    pub start: PathBuf,
    /// The file that keeps the vectors of tools. `None`: the vectors are not kept.
    pub file: Option<PathBuf>,
    /// Called if the program cannot be used. Called at most once.
    pub warn: Box<dyn Fn(String) + Send + Sync>,
}

/// Computes and keeps vectors. The thread and the program are started at the first use.
pub struct Embedder {
    shared: Arc<Shared>,
}

struct Shared {
    options: EmbedderOptions,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    vectors: Vectors,
    /// The vectors of the last questions.
    recent: VecDeque<(TextDigest, Arc<Vector>)>,
    questions: VecDeque<Text>,
    tools: VecDeque<Text>,
    /// The texts that wait, and the text that the program is working on.
    pending: HashSet<TextDigest>,
    /// The texts for which the program has failed.
    refused: HashSet<TextDigest>,
    thread: Option<JoinHandle<()>>,
    is_working: bool,
    /// True if the program is not used any more: it cannot be started, it has failed too often, or the embedder is closed.
    is_ended: bool,
}

struct Text {
    digest: TextDigest,
    words: String,
    is_question: bool,
}

impl Embedder {
    #[must_use]
    pub fn new(options: EmbedderOptions) -> Self {
        Self { shared: Arc::new(Shared { options, state: Mutex::default(), changed: Condvar::new() }) }
    }

    /// Returns the vector of a question. Waits for the vector, but no longer than `patience`. If the vector is computed later, it is kept
    /// for the next search.
    #[must_use]
    pub fn question(&self, text: &str, patience: Duration) -> Option<Arc<Vector>> {
        let digest = TextDigest::of(text);
        let deadline = Instant::now() + patience;
        let mut state = self.shared.state();
        self.shared.add_question(&mut state, digest, text);
        loop {
            if let Some((_, vector)) = state.recent.iter().find(|(known, _)| *known == digest) {
                return Some(Arc::clone(vector));
            }
            let is_pending = state.pending.contains(&digest);
            if !is_pending || state.is_ended || self.shared.changed.wait_until(&mut state, deadline).timed_out() {
                return None;
            }
        }
    }

    /// Returns the vectors of these texts, in the same order. A vector that is not computed yet is `None`.
    #[must_use]
    pub fn known(&self, digests: &[TextDigest]) -> Vec<Option<Arc<Vector>>> {
        let mut state = self.shared.state();
        digests.iter().map(|digest| state.vectors.get(digest)).collect()
    }

    /// Starts to compute the vectors of texts in the background. Calls `text` only for texts that do not wait already.
    pub fn compute<T>(&self, texts: impl Iterator<Item = (TextDigest, T)>, text: impl Fn(&T) -> String) {
        let mut state = self.shared.state();
        if state.is_ended || !state.vectors.has_room() {
            return;
        }
        for (digest, source) in texts {
            if state.tools.len() < MAX_VECTORS && !state.refused.contains(&digest) && state.pending.insert(digest) {
                state.tools.push_back(Text { digest, words: text(&source), is_question: false });
            }
        }
        self.shared.wake(&mut state);
    }

    /// Waits until all vectors are computed, or until `patience` is over. Returns whether all vectors are computed. Returns false if the
    /// program cannot be used.
    #[must_use]
    pub fn wait_until_done(&self, patience: Duration) -> bool {
        let deadline = Instant::now() + patience;
        let mut state = self.shared.state();
        while !state.pending.is_empty() && !state.is_ended {
            if self.shared.changed.wait_until(&mut state, deadline).timed_out() {
                return false;
            }
        }
        !state.is_ended
    }

    /// Ends the program and the thread, and waits for their end.
    pub fn close(&self) {
        let thread = self.end();
        if let Some(thread) = thread {
            let _ = thread.join();
        }
    }

    /// Begins to end the program and the thread, without waiting for their end. From now on, no search waits for a vector.
    pub fn begin_close(&self) {
        let thread = self.end();
        self.shared.state().thread = thread;
    }

    fn end(&self) -> Option<JoinHandle<()>> {
        let mut state = self.shared.state();
        state.is_ended = true;
        self.shared.changed.notify_all();
        state.thread.take()
    }
}

impl Drop for Embedder {
    fn drop(&mut self) {
        self.end();
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    fn add_question(self: &Arc<Self>, state: &mut State, digest: TextDigest, text: &str) {
        let is_known = state.recent.iter().any(|(known, _)| *known == digest);
        if is_known || state.is_ended || state.refused.contains(&digest) || !state.pending.insert(digest) {
            return;
        }
        if state.questions.len() >= MAX_QUESTIONS
            && let Some(oldest) = state.questions.pop_front()
        {
            state.pending.remove(&oldest.digest);
        }
        state.questions.push_back(Text { digest, words: text.to_owned(), is_question: true });
        self.wake(state);
    }

    /// Wakes the thread, or starts it if it does not run.
    fn wake(self: &Arc<Self>, state: &mut State) {
        if state.pending.is_empty() || state.is_ended {
            return;
        }
        self.changed.notify_all();
        if !state.is_working {
            let shared = Arc::clone(self);
            let started = std::thread::Builder::new().name("hyperlight-mcp-embedder".to_owned()).spawn(move || shared.work());
            // If the thread could not be started, the next search tries again.
            state.is_working = started.is_ok();
            state.thread = started.ok();
        }
    }

    /// Computes vectors until there has been nothing to compute for [`IDLE`], or until the embedder ends.
    fn work(&self) {
        if let Some(file) = &self.options.file {
            let saved = cache::read(file);
            self.state().vectors.add_saved(saved);
        }
        let (mut program, mut failures) = (None, 0);
        while let Some(text) = self.next() {
            let vector = match self.vector(&mut program, &text) {
                Ok(vector) => vector,
                Err(problem) => {
                    failures += 1;
                    let is_unusable = program.take().is_none() || failures >= MAX_FAILURES;
                    tracing::debug!(problem, "a vector could not be computed");
                    if is_unusable {
                        self.give_up(&problem);
                    }
                    None
                }
            };
            self.finish(&text, vector);
        }
        drop(program);
        self.save();
    }

    /// Returns the next text, or `None` if the thread must end.
    fn next(&self) -> Option<Text> {
        let mut state = self.state();
        loop {
            if state.is_ended {
                state.is_working = false;
                return None;
            }
            while let Some(text) = state.questions.pop_front().or_else(|| state.tools.pop_front()) {
                if text.is_question || state.vectors.get(&text.digest).is_none() {
                    return Some(text);
                }
                // The vector is known already, because it was in the file.
                state.pending.remove(&text.digest);
                self.changed.notify_all();
            }
            if state.vectors.unsaved > 0 {
                MutexGuard::unlocked(&mut state, || self.save());
                continue;
            }
            if self.changed.wait_for(&mut state, IDLE).timed_out() && state.pending.is_empty() {
                state.is_working = false;
                return None;
            }
        }
    }

    /// Returns the vector that the program computes for a text. Starts the program if it does not run. If the start fails, `program` stays
    /// empty.
    fn vector(&self, program: &mut Option<Program>, text: &Text) -> Result<Option<Arc<Vector>>, String> {
        let wanted = || !self.state().is_ended;
        let running = if let Some(running) = program {
            running
        } else {
            let path = package::find(self.options.package.as_deref(), &self.options.start)
                .map_err(|problem| format!("the package {PACKAGE} {problem}"))?;
            let started = Program::start(&path, &wanted).map_err(|error| failed(&path.display().to_string(), &error))?;
            program.insert(started)
        };
        running.vector(&text.words, &wanted).map(|vector| vector.map(Arc::new)).map_err(|error| failed(PACKAGE, &error))
    }

    fn finish(&self, text: &Text, vector: Option<Arc<Vector>>) {
        let mut state = self.state();
        state.pending.remove(&text.digest);
        match vector {
            None => {
                state.refused.insert(text.digest);
            }
            Some(vector) if text.is_question => {
                state.recent.truncate(RECENT_QUESTIONS - 1);
                state.recent.push_front((text.digest, vector));
            }
            Some(vector) => state.vectors.insert(text.digest, vector),
        }
        let is_due = state.vectors.unsaved >= SAVE_AFTER;
        self.changed.notify_all();
        drop(state);
        if is_due {
            self.save();
        }
    }

    /// Ends the use of the program, and sends one warning. Sends no warning if `close` has ended the program, because this is not a
    /// failure.
    fn give_up(&self, problem: &str) {
        let mut state = self.state();
        let was_ended = std::mem::replace(&mut state.is_ended, true);
        state.questions.clear();
        state.tools.clear();
        state.pending.clear();
        self.changed.notify_all();
        drop(state);
        if !was_ended {
            let version = env!("CARGO_PKG_VERSION");
            (self.options.warn)(format!(
                "search \"hybrid\" ranks only by words until the next start: {problem}. Install the package beside hyperlight-mcp: npm install {PACKAGE}@{version}"
            ));
        }
    }

    fn save(&self) {
        let mut state = self.state();
        let Some(file) = self.options.file.as_ref().filter(|_| state.vectors.unsaved > 0) else {
            state.vectors.unsaved = 0;
            return;
        };
        let content = state.vectors.content();
        drop(state);
        if let Err(error) = cache::write(file, content) {
            tracing::debug!(%error, "the vectors of tools could not be written");
        }
    }
}

fn failed(program: &str, error: &std::io::Error) -> String {
    format!("the program of {program} cannot be used: {error}")
}
