//! Formats generated tools for an approval: the hosts and secrets that their code may use, and the whole code.

use super::findings::{findings, tally};
use super::{LOOKALIKE, Page, line};
use crate::command::text::Tone;
use crate::config::{GeneratedTool, GeneratedTools};
use crate::fetch::{AllowedHost, shown_host_entry, unicode_entries};
use crate::trust::Finding;

/// Adds the tools of a generated server, each with its whole code. The findings of the audit come before them.
pub(super) fn add(page: &mut Page, tools: &GeneratedTools, found: &[Finding]) {
    let GeneratedTools { tools, hosts, private_hosts, secrets } = tools;
    page.field(
        "runs",
        &format!("{} generated tool{}, each call in a micro-VM of its own", tools.len(), if tools.len() == 1 { "" } else { "s" }),
    );
    if hosts.is_empty() {
        page.field("may reach", "nothing: no tool has a network");
    }
    let shown = |hosts: &[String]| hosts.iter().map(|host| shown_host_entry(host)).collect::<Vec<_>>();
    page.list("may reach", &shown(hosts));
    for host in hosts.iter().filter(|host| host.parse::<AllowedHost>().is_ok_and(|host| host.includes_strangers())) {
        page.noted(Tone::Bad, &format!("anybody can register a host name that is covered by {host}: the tools may reach these hosts too"));
    }
    page.list("also privately", &shown(private_hosts));
    let places = |in_body: bool| if in_body { ", also in bodies" } else { "" };
    let sent: Vec<String> = secrets
        .iter()
        .map(|secret| format!("the value of {} to {}{}", secret.name, shown_host_entry(&secret.host), places(secret.in_body)))
        .collect();
    page.list("sends", &sent);
    let all = hosts.iter().chain(private_hosts).chain(secrets.iter().map(|secret| &secret.host));
    if !unicode_entries(all).is_empty() {
        page.noted(Tone::Bad, LOOKALIKE);
    }
    page.field("audit", &tally(found));
    findings(page, found);
    for tool in tools {
        add_tool(page, tool);
    }
}

fn add_tool(page: &mut Page, tool: &GeneratedTool) {
    let GeneratedTool { name, description, input_schema, endpoints, notes, needs_network, read_only, code } = tool;
    page.heading(&format!("  {}", line(name)));
    page.field("description", description);
    page.field("arguments", &input_schema.to_string());
    page.list("endpoints", endpoints);
    if !notes.is_empty() {
        page.field("notes", notes);
    }
    page.field(
        "network",
        match (needs_network, read_only) {
            (false, _) => "none",
            (true, true) => "requests that only read (GET, HEAD)",
            (true, false) => "requests of any kind",
        },
    );
    for (number, text) in code.lines().enumerate() {
        // Each line begins with its number, and each continuation of a long line with a mark, so that no part can look like another line of
        // this page.
        page.code(number + 1, text);
    }
}

#[cfg(test)]
mod tests {
    use unicode_width::UnicodeWidthStr as _;

    use super::*;
    use crate::command::text::Style;
    use crate::config::GeneratedSecret;

    fn page(hosts: &[&str], code: &str) -> String {
        let tool = GeneratedTool {
            name: "t".to_owned(),
            description: "d".to_owned(),
            input_schema: serde_json::json!({ "type": "object" }),
            endpoints: Vec::new(),
            notes: String::new(),
            needs_network: false,
            read_only: true,
            code: code.to_owned(),
        };
        let hosts: Vec<String> = hosts.iter().map(|host| (*host).to_owned()).collect();
        let secrets = hosts.iter().map(|host| GeneratedSecret { name: "KEY".to_owned(), host: host.clone(), in_body: false }).collect();
        let tools = GeneratedTools { tools: vec![tool], hosts: hosts.clone(), private_hosts: hosts, secrets };
        let (style, text) = (Style::default(), String::new());
        let mut page = Page { style: &style, text };
        add(&mut page, &tools, &[]);
        page.text
    }

    #[test]
    fn no_part_of_a_long_line_of_code_can_look_like_a_line_of_the_page() {
        let fake = "   7 | }";
        let long = format!("const text = \"{}{fake}   digest        {}", " ".repeat(8) + &"x".repeat(55), "天".repeat(60));
        let text = page(&[], &format!("{long}\n{fake}\n\n  | {fake}"));
        let lines: Vec<&str> = text.lines().skip_while(|line| !line.starts_with("     1 | ")).collect();
        assert!(lines.len() > 5, "{text}");
        for line in &lines {
            let (mark, _) = line.split_at_checked(8).unwrap_or((line, ""));
            let is_numbered = mark.ends_with('|') && mark.trim_end_matches([' ', '|']).trim().parse::<usize>().is_ok();
            assert!(is_numbered || mark == "       \\", "{line:?} in {text}");
            assert!(line.width() <= 80, "{line:?}");
        }
        let whole: String =
            lines.iter().take_while(|line| !line.starts_with("     2 |")).map(|line| line.get(9..).unwrap_or_default()).collect();
        assert_eq!(whole, long, "no character is lost");
        assert_eq!(lines.iter().filter(|line| line.contains(" | ")).count(), 4 + 1, "{text}");
    }

    #[test]
    fn a_host_is_shown_in_ascii_and_if_it_has_other_letters_in_unicode_too_with_a_warning() {
        let text = page(&["\u{430}pple.com", "*.xn--bcher-kva.example:8443", "plain.example"], "");
        let flat = text.split_whitespace().collect::<Vec<_>>().join(" ");
        for shown in
            ["xn--pple-43d.com (in Unicode: \u{430}pple.com)", "*.xn--bcher-kva.example:8443 (in Unicode: *.b\u{fc}cher.example:8443)"]
        {
            assert_eq!(flat.matches(shown).count(), 3, "{shown}: {text}");
        }
        assert!(flat.contains("can look like other letters"), "{text}");
        let plain = page(&["plain.example"], "");
        assert!(!plain.contains("Unicode") && !plain.contains("look like"), "{plain}");
    }
}
