//! Asks a model for the plan, and asks once more if the plan cannot be used.

use std::sync::Arc;

use super::model::{Answer, Asking, ask, joined};
use crate::blocking::{Wait, blocking_while_awaited};
use crate::boot::plan::{Parsed, Plan, PlanMaterial, parse_plan, plan_request, problems_while};
use crate::boot::progress::Progress;
use crate::error::{Error, Result};
use crate::fetch::AllowedHosts;

pub(super) async fn make_plan(asking: Asking<'_>) -> Result<Plan> {
    let Asking { prompt, material, options, parts } = asking;
    let first = plan_request(PlanMaterial { prompt, pages: &material.pages, hosts: &material.hosts, secrets: &options.secrets });
    let mut request = first.clone();
    for attempt in 1..=2 {
        (parts.progress)(Progress::Planning { attempt, request_bytes: request.bytes() });
        let Answer { text, ms } = ask(asking, &request).await?;
        (parts.progress)(Progress::Answered { tool: None, attempt, answer_bytes: text.len(), ms });
        let text = Arc::new(text);
        let (answer, hosts) = (Arc::clone(&text), material.hosts.clone());
        // An answer may be made to take long.
        let judged = blocking_while_awaited(move |wait| judge(&answer, &hosts, wait)).await?;
        let problems = match judged {
            Judged::Sound(plan) => {
                (parts.progress)(Progress::Planned { tools: plan.tools.len(), answer_bytes: text.len(), ms });
                return Ok(plan);
            }
            Judged::Empty if attempt == 2 => return Err(Error::BootNoTools),
            Judged::Empty => vec!["the plan has no tool: plan at least one".to_owned()],
            Judged::Wrong(problems) if attempt == 2 => return Err(Error::BootPlan { problem: joined(&problems) }),
            Judged::Wrong(problems) => problems,
        };
        (parts.progress)(Progress::PlanRefused { problems: problems.clone() });
        request = first.again(&text, &problems);
    }
    Err(Error::Internal("the model was asked for a plan more than twice".into()))
}

enum Judged {
    Sound(Plan),
    Empty,
    Wrong(Vec<String>),
}

fn judge(answer: &str, hosts: &AllowedHosts, wait: &Wait) -> Result<Judged> {
    let plan = match parse_plan(answer) {
        Parsed::Plan(plan) if plan.tools.is_empty() => return Ok(Judged::Empty),
        Parsed::Plan(plan) => plan,
        Parsed::Refused(reason) => return Err(Error::BootRefused { what: "plan the tools".into(), reason: reason.into() }),
        Parsed::Unusable(problems) => return Ok(Judged::Wrong(problems)),
    };
    let problems = problems_while(&plan, hosts, &|| wait.goes_on());
    Ok(if problems.is_empty() { Judged::Sound(plan) } else { Judged::Wrong(problems) })
}
