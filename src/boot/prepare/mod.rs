//! All steps from a prompt to tools. Dropping the future of [`prepare`] ends all requests.

mod compile;
mod model;
mod plan;
mod reading;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;

use super::cache::{Cache, CacheEntry, EntryParts, Found, prompt_digest};
use super::digest::digest_of;
use super::generate::Generate;
use super::handlers::{CodeCheck, Handler, cut_prompt, generated_tool};
use super::pages::{KnownPages, PageSource};
use super::plan::Plan;
use super::progress::{Clock, Progress, ProgressListener};
use super::secrets::SecretName;
use crate::blocking::blocking;
use crate::config::{GeneratedSecret, GeneratedTools};
use crate::error::{Error, Result};
use crate::fetch::AllowedHosts;
use compile::Written;
use reading::Reading;

/// The longest prompt, in characters.
const MAX_PROMPT_CHARS: usize = 200_000;
/// The time in which a model must answer one request.
const MODEL_TIME: Duration = Duration::from_mins(10);

/// The options for making tools.
#[derive(Debug, Clone)]
pub struct PrepareOptions {
    /// The folder of the cache. If it is `None`, a model makes the tools each time.
    pub cache: Option<PathBuf>,
    /// True to take the newest tools of the prompt from the cache, without network and without a model.
    pub locked: bool,
    /// Ends with the plan, and writes no code.
    pub plan_only: bool,
    /// The names of the secrets that the tools may use.
    pub secrets: Vec<SecretName>,
    /// The time in which a model must answer one request.
    pub model_time: Duration,
}

impl Default for PrepareOptions {
    fn default() -> Self {
        Self { cache: None, locked: false, plan_only: false, secrets: Vec::new(), model_time: MODEL_TIME }
    }
}

/// The interfaces through which the pipeline uses pages, a model and other outside parts.
#[derive(Clone, Copy)]
pub struct BootParts<'a> {
    pub pages: &'a dyn PageSource,
    pub model: &'a dyn Generate,
    pub check: &'a dyn CodeCheck,
    pub clock: &'a dyn Clock,
    pub progress: &'a ProgressListener,
}

/// The source of the tools.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Origin {
    /// A model has made them now.
    Model,
    /// The cache contained the tools, and the pages have not changed.
    Cache,
    /// The cache contained the tools, and the pages were not checked for changes.
    Locked,
}

/// Tools that can be shown, approved and served.
#[derive(Debug, Clone)]
pub struct Prepared {
    pub plan: Plan,
    /// The code of each tool, in the order of the plan. Empty if only a plan was asked for, and no code is in the cache.
    pub handlers: Vec<Handler>,
    /// The hosts that the tools may reach.
    pub hosts: AllowedHosts,
    pub pages: KnownPages,
    pub secrets: Vec<SecretName>,
    pub origin: Origin,
    /// The moment at which the model made the tools, in milliseconds since 1970.
    pub created_at_ms: u64,
    /// Problems that did not stop the pipeline, but that a person should know about.
    pub warnings: Vec<String>,
}

impl Prepared {
    /// Returns the digest of what a person approves.
    #[must_use]
    pub fn digest(&self) -> String {
        digest_of(&self.plan, &self.handlers, &self.hosts, &self.secrets)
    }

    /// Returns the tools in the form of a generated server. `private_hosts` are the hosts that the operator allows although they are not on the
    /// public internet.
    #[must_use]
    pub fn generated(&self, private_hosts: &AllowedHosts) -> GeneratedTools {
        let body = |name: &str| self.handlers.iter().find(|handler| handler.tool == name).map(|handler| handler.body.as_str());
        let tools = self.plan.tools.iter().filter_map(|tool| Some(generated_tool(tool, body(&tool.name)?)));
        let secret =
            |secret: &SecretName| GeneratedSecret { name: secret.name.clone(), host: secret.host.clone(), in_body: secret.in_body };
        GeneratedTools {
            tools: tools.collect(),
            hosts: self.hosts.texts(),
            private_hosts: private_hosts.texts(),
            secrets: self.secrets.iter().map(secret).collect(),
        }
    }

    fn from_entry(entry: CacheEntry, origin: Origin, warnings: Vec<String>) -> Self {
        let hosts = entry.hosts();
        let CacheEntry { created_at_ms, plan, handlers, pages, secrets, .. } = entry;
        Self { plan, handlers, hosts, pages, secrets, origin, created_at_ms, warnings }
    }
}

/// Makes tools from a prompt, or takes them from the cache.
///
/// # Errors
/// `ERR_BOOT_PROMPT`, `ERR_BOOT_MODEL`, `ERR_BOOT_REFUSED`, `ERR_BOOT_NO_TOOLS`, `ERR_BOOT_PLAN`, `ERR_BOOT_HANDLER`, `ERR_BOOT_CACHE`,
/// `ERR_BOOT_NOT_CACHED`.
pub async fn prepare(prompt: &str, options: &PrepareOptions, parts: BootParts<'_>) -> Result<Prepared> {
    let prompt = checked_prompt(prompt)?;
    let mut notes = Notes::new(parts);
    let cache = match options.cache.clone() {
        Some(folder) => Some(blocking(move || Cache::open(&folder)).await?),
        None => None,
    };
    if let Some(warning) = cache.as_ref().and_then(Cache::warning) {
        notes.warn(warning);
    }
    let newest = match &cache {
        Some(cache) => newest(cache, &prompt_digest(prompt, &options.secrets), &mut notes).await?,
        None => None,
    };
    if options.locked {
        return locked(cache.as_ref(), newest, notes);
    }
    let known = newest.as_ref().map(|entry| entry.pages.clone()).unwrap_or_default();
    let reading = Reading::begin(prompt, known, parts, &mut notes).await;
    if let Some(cache) = &cache
        && let Some(entry) = hit(cache, prompt, options, &reading, newest.as_ref(), &mut notes).await?
    {
        for missed in reading.missed() {
            notes.warn(format!("{missed}; the tools that were made from the page's earlier content are kept"));
        }
        return Ok(from_cache(entry, Origin::Cache, notes));
    }
    let material = match (reading.finish(prompt, parts, &mut notes).await, newest) {
        (Ok(material), _) => Arc::new(material),
        (Err(missed), Some(entry)) => {
            for missed in missed {
                notes.warn(format!("{missed}; another page has changed, and the tools stay as they are until all pages can be read"));
            }
            return Ok(from_cache(entry, Origin::Cache, notes));
        }
        (Err(_), None) => return Err(Error::Internal("a page is known from the cache, but no tools are cached for this prompt".into())),
    };
    let asking = model::Asking { prompt, material: &material, options, parts };
    cut_prompt(prompt).filter(|_| !options.plan_only).into_iter().for_each(|warning| notes.warn(warning));
    let plan = plan::make_plan(asking).await?;
    let written = if options.plan_only { Vec::new() } else { compile::write_handlers(asking, &plan).await? };
    let handlers = kept(written, &mut notes);
    let created_at_ms = parts.clock.now_ms();
    let prepared = Prepared {
        plan,
        handlers,
        hosts: material.hosts.clone(),
        pages: material.facts.clone(),
        secrets: options.secrets.clone(),
        origin: Origin::Model,
        created_at_ms,
        warnings: Vec::new(),
    };
    if let Some(cache) = cache.filter(|_| !options.plan_only) {
        store(cache, prompt, &prepared).await?;
        notes.tell(Progress::Stored);
    }
    Ok(Prepared { warnings: notes.warnings, ..prepared })
}

/// Returns the handlers. Adds a warning for each handler that is kept although its check found a problem.
fn kept(written: Vec<Written>, notes: &mut Notes<'_>) -> Vec<Handler> {
    let mut handlers = Vec::with_capacity(written.len());
    for Written { handler, doubt } in written {
        if let Some(doubt) = doubt {
            notes.warn(doubt);
        }
        handlers.push(handler);
    }
    handlers
}

fn checked_prompt(prompt: &str) -> Result<&str> {
    let prompt = prompt.trim();
    let chars = prompt.chars().count();
    match chars {
        0 => Err(Error::BootPrompt { problem: "it is empty".into() }),
        chars if chars > MAX_PROMPT_CHARS => {
            Err(Error::BootPrompt { problem: format!("it has {chars} characters; the limit is {MAX_PROMPT_CHARS}").into() })
        }
        _ => Ok(prompt),
    }
}

/// The warnings of one call of [`prepare`]. Each warning is also reported immediately as a step.
struct Notes<'a> {
    parts: BootParts<'a>,
    warnings: Vec<String>,
}

impl<'a> Notes<'a> {
    fn new(parts: BootParts<'a>) -> Self {
        Self { parts, warnings: Vec::new() }
    }

    fn tell(&self, step: Progress) {
        (self.parts.progress)(step);
    }

    fn warn(&mut self, text: String) {
        self.tell(Progress::Warning { text: text.clone() });
        self.warnings.push(text);
    }

    fn found(&mut self, found: Found) -> Option<CacheEntry> {
        found.removed.into_iter().for_each(|text| self.warn(text));
        found.entry
    }
}

async fn newest(cache: &Cache, prompt_digest: &str, notes: &mut Notes<'_>) -> Result<Option<CacheEntry>> {
    let (cache, digest) = (cache.clone(), prompt_digest.to_owned());
    let found = blocking(move || Ok(cache.newest(&digest))).await?;
    Ok(notes.found(found))
}

fn locked(cache: Option<&Cache>, newest: Option<CacheEntry>, notes: Notes<'_>) -> Result<Prepared> {
    let Some(cache) = cache else {
        return Err(Error::InvalidOption { method: "boot", problem: "locked needs a cache: leave one of locked and noCache out".into() });
    };
    let entry = newest.ok_or_else(|| Error::BootNotCached { path: cache.folder().into() })?;
    Ok(from_cache(entry, Origin::Locked, notes))
}

fn from_cache(entry: CacheEntry, origin: Origin, notes: Notes<'_>) -> Prepared {
    notes.tell(Progress::FromCache { tools: entry.plan.tools.len(), created_at_ms: entry.created_at_ms });
    notes.tell(Progress::Hosts { hosts: entry.hosts().texts(), left_out: 0 });
    Prepared::from_entry(entry, origin, notes.warnings)
}

/// Returns the entry of the cache that was made from the present content of the pages.
async fn hit(
    cache: &Cache,
    prompt: &str,
    options: &PrepareOptions,
    reading: &Reading,
    newest: Option<&CacheEntry>,
    notes: &mut Notes<'_>,
) -> Result<Option<CacheEntry>> {
    let digest = prompt_digest(prompt, &options.secrets);
    let key = super::cache::key_of(&digest, &reading.facts());
    if let Some(entry) = newest.filter(|entry| entry.key() == key) {
        return Ok(Some(entry.clone()));
    }
    let cache = cache.clone();
    let found = blocking(move || Ok(cache.load(&digest, &key))).await?;
    Ok(notes.found(found))
}

async fn store(cache: Cache, prompt: &str, prepared: &Prepared) -> Result<()> {
    let Prepared { plan, handlers, hosts, pages, secrets, origin: _, created_at_ms, warnings: _ } = prepared;
    let entry = CacheEntry::new(EntryParts {
        prompt,
        created_at_ms: *created_at_ms,
        plan: plan.clone(),
        handlers: handlers.clone(),
        hosts,
        pages: pages.clone(),
        secrets: secrets.clone(),
    });
    blocking(move || cache.store(&entry)).await
}
