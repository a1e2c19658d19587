//! Replaces the page of a repository by its README, which is shorter and contains more information.

use url::Url;

const README_NAMES: [&str; 3] = ["README.md", "readme.md", "README.rst"];
/// First parts of a path on github.com that are not the name of an owner.
const GITHUB_PAGES: [&str; 12] =
    ["orgs", "topics", "features", "settings", "marketplace", "sponsors", "search", "login", "about", "pricing", "explore", "apps"];

/// If the URL is the page of a repository, returns the possible addresses of its README, the most likely address first. Pages within a
/// repository are read as they are.
pub(super) fn readmes(url: &Url) -> Vec<Url> {
    let Some(segments) = url.path_segments() else { return Vec::new() };
    let segments: Vec<_> = segments.filter(|segment| !segment.is_empty()).collect();
    if url.port().is_some() || url.scheme() != "https" {
        return Vec::new();
    }
    let base = match (url.host_str(), segments.as_slice()) {
        (Some("github.com" | "www.github.com"), [owner, repository]) if !GITHUB_PAGES.contains(owner) => {
            let repository = repository.strip_suffix(".git").unwrap_or(repository);
            format!("https://raw.githubusercontent.com/{owner}/{repository}/HEAD")
        }
        // A group may be within groups; `-` begins the pages within a repository.
        (Some("gitlab.com"), [first, .., _]) if !segments.contains(&"-") && !matches!(*first, "explore" | "users" | "groups") => {
            let path = segments.join("/");
            format!("https://gitlab.com/{}/-/raw/HEAD", path.strip_suffix(".git").unwrap_or(&path))
        }
        _ => return Vec::new(),
    };
    README_NAMES.into_iter().filter_map(|name| Url::parse(&format!("{base}/{name}")).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn first(url: &str) -> Option<String> {
        readmes(&Url::parse(url).unwrap()).into_iter().next().map(String::from)
    }

    #[test]
    fn the_page_of_a_repository_is_its_readme() {
        for (url, readme) in [
            ("https://github.com/owner/name", "https://raw.githubusercontent.com/owner/name/HEAD/README.md"),
            ("https://github.com/owner/name.git", "https://raw.githubusercontent.com/owner/name/HEAD/README.md"),
            ("https://www.github.com/owner/name/?tab=readme", "https://raw.githubusercontent.com/owner/name/HEAD/README.md"),
            ("https://gitlab.com/group/sub/name", "https://gitlab.com/group/sub/name/-/raw/HEAD/README.md"),
        ] {
            assert_eq!(first(url).as_deref(), Some(readme), "{url}");
        }
    }

    #[test]
    fn other_pages_are_read_as_they_are() {
        for url in [
            "https://github.com/owner",
            "https://github.com/owner/name/blob/main/docs/api.md",
            "https://github.com/topics/mcp",
            "https://gitlab.com/group/name/-/issues",
            "https://github.com.evil.example/owner/name",
            "http://github.com/owner/name",
            "https://github.com:8443/owner/name",
            "https://docs.example.com/owner/name",
        ] {
            assert_eq!(first(url), None, "{url}");
        }
    }
}
