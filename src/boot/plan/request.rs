//! The request for a plan.

use crate::boot::generate::GenerateRequest;
use crate::boot::material::{ABOUT_DATA, pages_as_data};
use crate::boot::pages::Page;
use crate::boot::secrets::{SecretName, about_secrets};
use crate::fetch::AllowedHosts;

const SYSTEM: &str = r#"You plan the tools of an MCP server. Another request will write the code of each tool from your plan, once; no model runs later.

Answer with one JSON object and nothing else:

{"tools": [{
  "name": "get_forecast",
  "description": "What the tool does and returns, for the model that will call it.",
  "input_schema": {"type": "object", "properties": {"city": {"type": "string", "description": "…"}}, "required": ["city"], "additionalProperties": false},
  "endpoints": [{"method": "GET", "url": "https://api.example.com/v1/forecast/{city}"}],
  "implementation_notes": "How requests are made and answers are read: parameters, paging, errors, what is returned.",
  "needs_network": true,
  "read_only": true
}]}

Rules:
- At least one tool. Only what the task asks for; if it asks for an API as a whole, one tool for each useful operation.
- name: lowercase letters, digits and underscores; each name once.
- input_schema: JSON Schema 2020-12 of an object, without recursion and without references to other documents.
- endpoints: absolute URLs, with parameters in braces, on the allowed hosts only. A tool that computes has none, and needs_network is false.
- read_only: true only if the tool changes nothing anywhere. Its requests are GET and HEAD.
- A tool takes JSON and returns JSON. It has no files, no processes, no state between calls, and 30 seconds.
- If you must refuse, answer {"refusal": "the reason"}."#;

/// The data from which a plan is made.
#[derive(Clone, Copy)]
pub(in crate::boot) struct PlanMaterial<'a> {
    pub(in crate::boot) prompt: &'a str,
    pub(in crate::boot) pages: &'a [Page],
    pub(in crate::boot) hosts: &'a AllowedHosts,
    pub(in crate::boot) secrets: &'a [SecretName],
}

/// Returns the request for a plan.
pub(in crate::boot) fn plan_request(material: PlanMaterial<'_>) -> GenerateRequest {
    let PlanMaterial { prompt, pages, hosts, secrets } = material;
    let hosts = if hosts.is_empty() { "none: every tool computes without the network".to_owned() } else { hosts.texts().join("\n") };
    let user = format!(
        "# Task\n\n{}\n\n# Allowed hosts\n\n{hosts}\n\n# Keys\n\n{}\n\n# Documentation\n\n{ABOUT_DATA}\n\n{}",
        prompt.trim(),
        about_secrets(secrets),
        pages_as_data(pages.iter().map(|page| (page, page.text.as_str()))),
    );
    GenerateRequest::new(SYSTEM.to_owned(), user)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_request_has_the_task_the_hosts_and_the_names_of_the_keys() {
        let hosts = AllowedHosts::parse(["*.example.com"]).unwrap();
        let secrets = [SecretName { name: "WEATHER_KEY".to_owned(), host: "api.example.com".to_owned(), in_body: false }];
        let material = PlanMaterial { prompt: " Tools for the weather ", pages: &[], hosts: &hosts, secrets: &secrets };
        let request = plan_request(material);
        for part in
            ["# Task\n\nTools for the weather\n", "*.example.com", "secrets.WEATHER_KEY (only for api.example.com)", "no documentation"]
        {
            assert!(request.user.contains(part), "{part}");
        }
        let again = request.again("an answer", &["the plan has no tool".to_owned()]);
        assert!(again.user.starts_with(&request.user) && again.user.contains("- the plan has no tool") && again.user.contains("an answer"));
        let none = plan_request(PlanMaterial { hosts: &AllowedHosts::none(), ..material });
        assert!(none.user.contains("none: every tool computes"));
    }
}
