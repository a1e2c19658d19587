//! Gets pages through `fetch`, which checks addresses.

use std::sync::Arc;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use url::Url;

use super::{PAGE_TIME, PageAnswer, PageProblem, PageSource};
use crate::fetch::{
    AllowedHost, AllowedHosts, FetchPolicy, FetchRequest, FetchResponse, FetchSession, Fetcher, Methods, NoObserver, RedirectMode,
};

/// The largest number of redirects for one page.
const MAX_REDIRECTS: usize = 10;
const ACCEPT: &str = "application/json, application/yaml, text/markdown, text/html;q=0.9, text/plain;q=0.9, */*;q=0.5";

/// Pages of the public internet, and of private hosts that the operator allows.
pub struct FetchedPages {
    fetcher: Fetcher,
    private_hosts: AllowedHosts,
}

impl FetchedPages {
    #[must_use]
    pub fn new(fetcher: Fetcher, private_hosts: AllowedHosts) -> Self {
        Self { fetcher, private_hosts }
    }

    /// Gets a page. Each address on the way is judged as if the prompt named it: its scheme, and all addresses of its host. A redirect to
    /// another host is followed, but this does not add the host to the whitelist.
    async fn follow(&self, url: &Url, etag: Option<&str>) -> Result<PageAnswer, PageProblem> {
        let mut current = url.clone();
        for _ in 0..=MAX_REDIRECTS {
            let session = self.session(&current)?;
            let mut request = FetchRequest { redirect: RedirectMode::Manual, ..FetchRequest::get(current.as_str()) };
            request.headers.push(("accept".to_owned(), ACCEPT.to_owned()));
            // Another host must not get the `ETag` of this host.
            if let Some(etag) = etag.filter(|_| current.origin() == url.origin()) {
                request.headers.push(("if-none-match".to_owned(), etag.to_owned()));
            }
            let response = session.open(request).await.map_err(problem)?;
            match response.status {
                200 => return content(&session, response).await,
                304 if etag.is_some() => return Ok(PageAnswer::Unchanged),
                301 | 302 | 303 | 307 | 308 => current = target(&current, &response)?,
                401 | 403 => return Err(format!("answered {}: it needs a login", response.status).into()),
                status => return Err(format!("answered {status}").into()),
            }
        }
        Err(format!("redirects more than {MAX_REDIRECTS} times").into())
    }

    fn session(&self, url: &Url) -> Result<FetchSession, PageProblem> {
        let hosts = AllowedHost::of_url(url).map_err(|problem| problem.to_string())?.into_iter().collect();
        let mut policy = FetchPolicy::new(hosts, "");
        policy.private_hosts = self.private_hosts.clone();
        policy.methods = Methods::ReadOnly;
        policy.limits.request_time = PAGE_TIME;
        self.fetcher.session(policy, Arc::new(NoObserver)).map_err(problem)
    }
}

impl PageSource for FetchedPages {
    fn get<'a>(&'a self, url: &'a Url, etag: Option<&'a str>) -> BoxFuture<'a, Result<PageAnswer, PageProblem>> {
        self.follow(url, etag).boxed()
    }
}

async fn content(session: &FetchSession, response: FetchResponse) -> Result<PageAnswer, PageProblem> {
    let (content_type, etag) = (header(&response, "content-type"), header(&response, "etag"));
    let bytes = match response.body {
        Some(body) => session.read_all(body).await.map_err(problem)?,
        None => bytes::Bytes::new(),
    };
    Ok(PageAnswer::Content { content_type, etag, bytes })
}

fn header(response: &FetchResponse, name: &str) -> Option<String> {
    response.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.clone())
}

fn target(current: &Url, response: &FetchResponse) -> Result<Url, PageProblem> {
    let location = header(response, "location").ok_or("redirects to no address")?;
    let target = current.join(&location).map_err(|_| "redirects to an address that is not a URL")?;
    match (current.scheme(), target.scheme()) {
        ("https", "http") => Err("redirects from https to http".into()),
        (_, "http" | "https") => Ok(target),
        _ => Err("redirects to an address that is neither http nor https".into()),
    }
}

fn problem(error: impl std::fmt::Display) -> PageProblem {
    PageProblem(format!("cannot be read: {}", error.to_string().trim()))
}
