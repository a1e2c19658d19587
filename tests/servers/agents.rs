//! Agents of one gateway do not see anything of each other. Tests through the crate's own API, with a real server.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::future::join_all;
use hyperlight_mcp::Result;
use hyperlight_mcp::agent::{AgentOptions, AgentTools, ExecuteOptions};
use hyperlight_mcp::bridge::ToolErrors;
use hyperlight_mcp::client::ElicitationAnswer;
use hyperlight_mcp::gateway::{
    Agent, Answer, ApprovalQuestion, CallOptions, Callbacks, ElicitationQuestion, IdentityOptions, RunOptions, RunReport, SamplingQuestion,
    Sandbox, SandboxOptions,
};
use hyperlight_mcp::sandbox::{Stop, Value};
use hyperlight_mcp::trust::Decision;
use serde_json::{Value as Json, json};

use crate::support::asking::{ONE, RecordedEvents, Setup, accepted, decline};
use crate::support::{object, patience, until, within};

const NOTE: &str = "fixture://note.txt";
const WATCHED: [&[&str]; 2] = [&["--resources"], &["--resources", "--era", "2026"]];

/// A person who answers every question with their name, and records the questions.
struct NamedPerson {
    name: String,
    decision: Decision,
    asked: Mutex<Vec<String>>,
}

impl NamedPerson {
    fn named(name: &str) -> Arc<Self> {
        Self::deciding(name, Decision::Once)
    }

    fn deciding(name: &str, decision: Decision) -> Arc<Self> {
        Arc::new(Self { name: name.to_owned(), decision, asked: Mutex::default() })
    }

    fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }

    fn note(&self, question: impl Into<String>) {
        self.asked.lock().unwrap().push(question.into());
    }

    fn callbacks(self: &Arc<Self>) -> Arc<dyn Callbacks> {
        Arc::clone(self) as _
    }
}

impl Callbacks for NamedPerson {
    fn approve_call(&self, question: &ApprovalQuestion) -> Option<Answer<Decision>> {
        self.note(format!("{} {}", question.tool, json!(question.args)));
        let decision = self.decision;
        Some(Box::pin(async move {
            thought().await;
            Ok(decision)
        }))
    }

    fn can_elicit(&self) -> bool {
        true
    }

    fn elicit(&self, question: &ElicitationQuestion) -> Option<Answer<ElicitationAnswer>> {
        self.note(json!(question)["message"].as_str().unwrap());
        let answer = ElicitationAnswer::Accept(Some(json!({ "answer": self.name })));
        Some(Box::pin(async move {
            thought().await;
            Ok(answer)
        }))
    }

    fn can_sample(&self) -> bool {
        true
    }

    fn sample(&self, question: &SamplingQuestion) -> Option<Answer<Json>> {
        self.note(json!(question)["params"]["messages"][0]["content"]["text"].as_str().unwrap());
        let content = json!({ "type": "text", "text": self.name });
        Some(Box::pin(async move {
            thought().await;
            Ok(json!({ "role": "assistant", "content": content, "model": "test" }))
        }))
    }
}

/// Waits for a moment, so that others can ask in the meantime.
async fn thought() {
    tokio::time::sleep(Duration::from_millis(3)).await;
}

fn agent_of(setup: &Setup, voice: &Arc<NamedPerson>) -> Agent {
    setup.gateway.agent(&voice.name, IdentityOptions { callbacks: Some(voice.callbacks()), ..IdentityOptions::default() }).unwrap()
}

fn silent(setup: &Setup, name: &str) -> Agent {
    setup.gateway.agent(name, IdentityOptions::default()).unwrap()
}

/// Opens a gateway with a server whose writes need permission. The operator would allow all of them.
async fn asking_room(flags: &[&str]) -> (Setup, Arc<NamedPerson>) {
    let operator = NamedPerson::deciding("operator", Decision::Session);
    let setup = Setup::asked_by(flags, &json!({ "confirm": "writes", "elicits": true }), Some(operator.callbacks())).await;
    (setup, operator)
}

async fn call(agent: &Agent, tool: &str, arguments: Json) -> Result<Json> {
    within(patience(), tool, agent.call_tool(ONE, tool, object(arguments), CallOptions::default(), &Stop::new())).await
}

async fn code(agent: &Agent, tool: &str, arguments: Json) -> &'static str {
    code_of(call(agent, tool, arguments).await)
}

fn code_of<T>(outcome: Result<T>) -> &'static str {
    outcome.err().map_or("no error", |error| error.code())
}

async fn write(agent: &Agent) -> &'static str {
    code(agent, "write_note", json!({ "text": "x" })).await
}

fn tools_of(agent: &Agent) -> AgentTools {
    AgentTools::new(agent.clone(), None, AgentOptions::default()).unwrap()
}

async fn manage(agent: &Agent, action: &str) -> Json {
    tools_of(agent).execute("manage_mcp", &json!({ "action": action, "server": ONE }), &Stop::new()).await.unwrap()
}

/// Starts a call that stays pending until something ends it. Waits until it has reached the server.
async fn pending(setup: &Setup, agent: &Agent) -> tokio::task::JoinHandle<Result<Json>> {
    let sent = || setup.test_folder.events(ONE).iter().filter(|event| event["name"] == "hang").count();
    let (before, agent) = (sent(), agent.clone());
    let call = tokio::spawn(async move { agent.call_tool(ONE, "hang", object(json!({})), CallOptions::default(), &Stop::new()).await });
    until("the call to arrive", || (sent() > before).then_some(())).await;
    call
}

async fn ended(call: tokio::task::JoinHandle<Result<Json>>) -> &'static str {
    code_of(within(patience(), "the end of a call", call).await.unwrap())
}

async fn run(sandbox: &Arc<Sandbox>, expression: &str) -> RunReport {
    let code = format!("import {{ saved, call }} from 'host:mcp'; export const handler = async () => ({expression})");
    within(patience(), "a run", sandbox.run(code, RunOptions::default())).await
}

fn value(report: RunReport) -> Json {
    let Value::Record(mut fields) = Value::from_wire(report.outcome.value.unwrap()).unwrap() else { panic!("no record") };
    fields.remove(0).1.into_json()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_yes_of_one_agent_is_not_anothers() {
    let (setup, operator) = asking_room(&[]).await;
    let (first, second) = (NamedPerson::deciding("first", Decision::Session), NamedPerson::deciding("second", Decision::Deny));
    let (agent, other) = (agent_of(&setup, &first), agent_of(&setup, &second));
    for _ in 0..3 {
        assert_eq!(write(&agent).await, "no error");
    }
    assert_eq!(first.asked().len(), 1);
    assert_eq!(write(&other).await, "ERR_CALL_DENIED");
    assert_eq!((second.asked().len(), operator.asked().len()), (1, 0));
    // The operator's permission is valid only for the operator, and an agent's is not valid for the operator.
    assert_eq!(write(&setup.gateway).await, "no error");
    assert_eq!(operator.asked().len(), 1);
    assert_eq!(write(&other).await, "ERR_CALL_DENIED");
    // Two agents with the same name are different agents.
    let twin = agent_of(&setup, &first);
    assert_eq!(write(&twin).await, "no error");
    assert_eq!(first.asked().len(), 2);
    setup.gateway.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_question_about_an_agents_call_reaches_its_callbacks_and_no_others() {
    for flags in [&[][..], &["--era", "2026"]] {
        let (setup, operator) = asking_room(flags).await;
        let (first, second) = (NamedPerson::named("first"), NamedPerson::named("second"));
        let (agent, other) = (agent_of(&setup, &first), agent_of(&setup, &second));
        let answer = call(&agent, "elicit", json!({ "message": "whose?" })).await.unwrap();
        assert_eq!(answer["structuredContent"], accepted("first"), "{flags:?}");
        let answer = call(&other, "sample", json!({ "prompt": "whose model?" })).await.unwrap();
        assert!(answer.to_string().contains("second"), "{answer}");
        assert!(first.asked().iter().any(|asked| asked == "whose?") && second.asked().iter().any(|asked| asked == "whose model?"));
        assert!(!first.asked().iter().any(|asked| asked == "whose model?") && !second.asked().iter().any(|asked| asked == "whose?"));
        assert_eq!(operator.asked(), [""; 0]);
        setup.gateway.close().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_without_callbacks_has_nobody_to_ask_though_the_operator_has_some() {
    let operator = NamedPerson::deciding("operator", Decision::Session);
    let setup = Setup::asked_by(&[], &json!({ "confirm": "writes" }), Some(operator.callbacks())).await;
    let agent = silent(&setup, "lonely");
    assert_eq!(write(&agent).await, "ERR_CALL_DENIED");
    let sandbox = agent.sandbox(ToolErrors::Return, None).unwrap();
    assert_eq!(
        value(
            run(&sandbox, "(() => { try { return call('one', 'write_note', { text: 'x' }) } catch ({ code }) { return code } })()").await
        ),
        "ERR_CALL_DENIED"
    );
    assert_eq!(operator.asked(), [""; 0]);

    let open = Setup::asked_by(&[], &json!({ "confirm": "never" }), Some(operator.callbacks())).await;
    let answer = call(&silent(&open, "lonely"), "elicit", json!({})).await.unwrap();
    assert_eq!(answer["structuredContent"], decline());
    assert_eq!(operator.asked(), [""; 0]);
    setup.gateway.close().await;
    open.gateway.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn callbacks_of_one_tool_call_of_a_model_are_asked_about_its_run_alone() {
    let (setup, operator) = asking_room(&[]).await;
    let (agents, one, two) = (NamedPerson::named("agent"), NamedPerson::named("one"), NamedPerson::named("two"));
    let tools = tools_of(&agent_of(&setup, &agents));
    let ask = async |voice: Option<&Arc<NamedPerson>>| {
        let code = "import { elicit } from 'host:mcp-one'; export const handler = () => elicit({}).content.answer";
        let options = ExecuteOptions { callbacks: voice.map(NamedPerson::callbacks), ..ExecuteOptions::default() };
        let answer = tools.execute_with("run_javascript", &json!({ "code": code }), options).await.unwrap();
        answer["value"].clone()
    };
    assert_eq!([ask(Some(&one)).await, ask(Some(&two)).await, ask(None).await], ["one", "two", "agent"]);
    assert_eq!([&one, &two, &agents, &operator].map(|voice| voice.asked().len()), [1, 1, 1, 0]);
    setup.gateway.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_model_disables_for_its_agent_alone_and_a_person_for_all() {
    let setup = Setup::open(&[]).await;
    let (agent, other) = (silent(&setup, "first"), silent(&setup, "second"));
    let [own, others] = [pending(&setup, &agent).await, pending(&setup, &other).await];
    assert_eq!(manage(&agent, "disable").await["disabled"], true);
    assert_eq!(ended(own).await, "ERR_NOT_ENABLED");
    assert_eq!(code(&agent, "echo", json!({ "value": 1 })).await, "ERR_NOT_ENABLED");
    assert_eq!(code(&other, "echo", json!({ "value": 1 })).await, "no error");
    assert!(agent.list_modules().unwrap().iter().all(|module| module.specifier != "host:mcp-one"));
    assert!(other.list_modules().unwrap().iter().any(|module| module.specifier == "host:mcp-one"));
    // If one model tests the connection, the calls of the other one continue.
    let spawned = setup.test_folder.count(ONE, "spawn");
    assert_eq!(manage(&agent, "test").await["connected"], true);
    assert_eq!((setup.test_folder.count(ONE, "spawn"), others.is_finished()), (spawned, false));
    assert_eq!(manage(&agent, "reload").await["error"]["code"], "ERR_OPERATOR_ONLY");

    assert_eq!(manage(&agent, "enable").await["usable"], true);
    let own = pending(&setup, &agent).await;
    setup.gateway.disable(ONE).await.unwrap();
    assert_eq!([ended(own).await, ended(others).await], ["ERR_NOT_ENABLED"; 2]);
    assert_eq!(manage(&agent, "enable").await["error"]["code"], "ERR_DISABLED_BY_PERSON");
    setup.gateway.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_no_agent_sees_any_more_loses_its_process() {
    let setup = Setup::open(&[]).await;
    let agent = silent(&setup, "only");
    assert_eq!(code(&agent, "echo", json!({ "value": 1 })).await, "no error");
    manage(&agent, "disable").await;
    assert_eq!(setup.test_folder.servers_running().len(), 1, "the operator still sees it");
    manage(&setup.gateway, "disable").await;
    setup.test_folder.all_servers_gone().await;
    setup.gateway.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_resource_that_changes_is_told_to_whom_has_subscribed_and_to_nobody_else() {
    for flags in WATCHED {
        let setup = Setup::open(flags).await;
        let (told, told_other) = (RecordedEvents::default(), RecordedEvents::default());
        let agent = |told: &RecordedEvents| {
            let options = IdentityOptions { on_event: Some(told.listener()), ..IdentityOptions::default() };
            setup.gateway.agent("watcher", options).unwrap()
        };
        let (first, second, third) = (agent(&told), agent(&told_other), agent(&told_other));
        let updates = |told: &RecordedEvents| told.all("resource-updated").len();
        first.subscribe(ONE, NOTE).await.unwrap();
        call(&first, "touch", json!({})).await.unwrap();
        until("the event", || (updates(&told) == 1).then_some(())).await;
        assert_eq!((updates(&told_other), updates(&setup.told)), (0, 0), "{flags:?}");

        // When one subscription ends, the other one continues. After the last one, the server is asked to unsubscribe.
        second.subscribe(ONE, NOTE).await.unwrap();
        first.unsubscribe(ONE, NOTE).await.unwrap();
        call(&first, "touch", json!({})).await.unwrap();
        until("the other's event", || (updates(&told_other) == 1).then_some(())).await;
        assert_eq!((updates(&told), updates(&setup.told)), (1, 0));
        let method = if flags.len() == 1 { "resources/unsubscribe" } else { "notifications/cancelled" };
        let unsubscribed = || setup.test_folder.events(ONE).iter().filter(|event| event["method"] == method).count();
        third.subscribe(ONE, NOTE).await.unwrap();
        second.close().await;
        call(&third, "touch", json!({})).await.unwrap();
        until("the third's event", || (updates(&told_other) == 2).then_some(())).await;
        let before = unsubscribed();
        // The agent is dropped without being closed.
        drop(third);
        until("the server to be told", || (unsubscribed() > before).then_some(())).await;
        setup.gateway.close().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_model_that_disables_a_server_ends_the_subscriptions_of_its_agent() {
    let setup = Setup::open(WATCHED[0]).await;
    let (agent, other) = (silent(&setup, "first"), silent(&setup, "second"));
    agent.subscribe(ONE, NOTE).await.unwrap();
    manage(&agent, "disable").await;
    setup.test_folder.logged(ONE, "request", |event| event["method"] == "resources/unsubscribe").await;
    call(&other, "touch", json!({})).await.unwrap();
    assert_eq!(setup.told.all("resource-updated").len(), 0);
    setup.gateway.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn saved_values_belong_to_a_sandbox_and_end_with_its_agent() {
    let setup = Setup::open(&[]).await;
    let (agent, other) = (silent(&setup, "first"), silent(&setup, "second"));
    let sandbox = |agent: &Agent| {
        let options = SandboxOptions { max_result_tokens: Some(200), ..SandboxOptions::default() };
        agent.sandbox_with(options).unwrap()
    };
    let (own, others) = (sandbox(&agent), sandbox(&other));
    let id = run(&own, "Array.from({ length: 900 }, (_, n) => 'line ' + n)").await.saved_as.unwrap();
    let read = format!("saved('{id}').length");
    assert_eq!(value(run(&own, &read).await), 900);
    assert!(run(&others, &read).await.outcome.value.is_err());
    agent.close().await;
    assert_eq!(run(&own, &read).await.outcome.value.unwrap_err().code(), "ERR_CLOSED");
    assert_eq!(value(run(&others, "1").await), 1);
    setup.gateway.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn close_ends_what_is_of_the_agent_and_nothing_else() {
    let setup = Setup::open(&["--resources"]).await;
    let (agent, other) = (silent(&setup, "first"), silent(&setup, "second"));
    let sandbox = agent.sandbox(ToolErrors::Return, None).unwrap();
    let tools = tools_of(&agent);
    let [own, others] = [pending(&setup, &agent).await, pending(&setup, &other).await];
    let start = |code: &str| tokio::spawn(sandbox.run(code.to_owned(), RunOptions::default()));
    let (running, queued) = (start("export const handler = () => { for (;;); }"), start("export const handler = () => 1"));
    let server = setup.test_folder.pid(ONE).await;
    within(patience(), "the end of an agent", agent.close()).await;
    assert_eq!(ended(own).await, "ERR_CLOSED");
    for run in [running, queued] {
        let report = within(patience(), "the end of a run", run).await.unwrap();
        assert_eq!(report.outcome.value.unwrap_err().code(), "ERR_CLOSED");
    }

    // No work can be started after the end.
    assert_eq!(code(&agent, "echo", json!({ "value": 1 })).await, "ERR_CLOSED");
    assert_eq!(code_of(agent.sandbox(ToolErrors::Return, None)), "ERR_CLOSED");
    assert_eq!(code_of(agent.declarations(None, ToolErrors::Return)), "ERR_CLOSED");
    assert_eq!(code_of(agent.approved_module(ONE, hyperlight_mcp::gateway::ApprovalRead::Fresh)), "ERR_CLOSED");
    assert_eq!(code_of(agent.subscribe(ONE, NOTE).await), "ERR_CLOSED");
    let answer = tools.execute("manage_mcp", &json!({ "action": "enable", "server": ONE }), &Stop::new()).await.unwrap();
    assert_eq!(answer["error"]["code"], "ERR_CLOSED");
    agent.close().await;

    assert!(!others.is_finished());
    assert_eq!(code(&other, "echo", json!({ "value": 1 })).await, "no error");
    assert_eq!((setup.test_folder.pid(ONE).await, setup.test_folder.servers_running().len()), (server, 1));
    setup.gateway.close().await;
    assert_eq!(ended(others).await, "ERR_CLOSED");
    assert_eq!(code_of(setup.gateway.agent("late", IdentityOptions::default())), "ERR_CLOSED");
}

/// A person who never answers. The value is dropped when nobody waits for the answer any more.
struct Thinking(Mutex<Option<Arc<()>>>);

impl Callbacks for Thinking {
    fn approve_call(&self, _question: &ApprovalQuestion) -> Option<Answer<Decision>> {
        let thinking = self.0.lock().unwrap().take();
        Some(Box::pin(async move {
            let never = std::future::pending().await;
            drop(thinking);
            never
        }))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pending_question_ends_with_its_agent() {
    let (setup, operator) = asking_room(&[]).await;
    let thinking = Arc::new(());
    let waited_for = Arc::downgrade(&thinking);
    let person = Arc::new(Thinking(Mutex::new(Some(thinking))));
    let agent =
        setup.gateway.agent("slow", IdentityOptions { callbacks: Some(Arc::clone(&person) as _), ..IdentityOptions::default() }).unwrap();
    let asking = tokio::spawn({
        let agent = agent.clone();
        async move { write(&agent).await }
    });
    until("the question", || person.0.lock().unwrap().is_none().then_some(())).await;
    agent.close().await;
    assert_eq!(asking.await.unwrap(), "ERR_CLOSED");
    assert!(waited_for.upgrade().is_none());
    let sent = setup.test_folder.events(ONE).iter().filter(|event| event["name"] == "write_note").count();
    assert_eq!((operator.asked(), sent), (Vec::new(), 0));
    setup.gateway.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_revocation_takes_back_what_was_allowed_for_the_session_to_all_agents() {
    let (setup, _) = asking_room(&[]).await;
    let voices = ["first", "second"].map(|name| NamedPerson::deciding(name, Decision::Session));
    let agents = [agent_of(&setup, &voices[0]), agent_of(&setup, &voices[1])];
    for agent in &agents {
        assert_eq!(write(agent).await, "no error");
    }
    setup.gateway.revoke(ONE).await.unwrap();
    setup.gateway.approve(ONE, None, None).await.unwrap();
    setup.gateway.enable(ONE).unwrap();
    for (agent, voice) in agents.iter().zip(&voices) {
        assert_eq!((write(agent).await, voice.asked().len()), ("no error", 2));
    }
    setup.gateway.close().await;
}

/// One request of an interleaving: its agent, its kind, and a delay before it.
#[derive(Clone, Copy)]
struct Step {
    agent: usize,
    kind: usize,
    delay_ms: u64,
}

/// Returns steps in an order that depends only on the seed.
fn interleaving(seed: u64) -> Vec<Step> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut next = |below: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % below
    };
    let small = |number: u64| usize::try_from(number).unwrap();
    (0..12).map(|_| Step { agent: small(next(2)), kind: small(next(4)), delay_ms: next(6) }).collect()
}

/// Makes one request, and checks that the answer belongs to this agent.
async fn take(agent: &Agent, name: &str, sandbox: &Arc<Sandbox>, number: usize, step: Step) {
    tokio::time::sleep(Duration::from_millis(step.delay_ms)).await;
    let mark = format!("{name} asks {number}");
    match step.kind {
        0 => {
            let outcome = call(agent, "write_note", json!({ "text": mark })).await;
            // One of the two persons refuses every write.
            assert_eq!(code_of(outcome), if name == "yes" { "no error" } else { "ERR_CALL_DENIED" });
        }
        1 => {
            let answer = call(agent, "elicit", json!({ "message": mark, "delay_ms": step.delay_ms })).await.unwrap();
            assert_eq!(answer["structuredContent"], accepted(name), "{mark}");
        }
        2 => {
            let answer = call(agent, "sample", json!({ "prompt": mark })).await.unwrap();
            assert!(answer["content"].to_string().contains(name) || answer["structuredContent"].to_string().contains(name), "{answer}");
        }
        _ => {
            let asked = run(sandbox, &format!("call('one', 'elicit', {{ message: '{mark}' }}).structuredContent")).await;
            assert_eq!(value(asked), accepted(name), "{mark}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn whatever_two_agents_ask_at_once_every_answer_goes_to_its_own() {
    for flags in [&["--tools", "write_note,elicit,sample"][..], &["--era", "2026"]] {
        let operator = NamedPerson::deciding("operator", Decision::Session);
        let setup = Setup::asked_by(flags, &json!({ "confirm": "writes", "elicits": true }), Some(operator.callbacks())).await;
        for seed in 1..=8 {
            let voices = [NamedPerson::named("yes"), NamedPerson::deciding("no", Decision::Deny)];
            let agents = [agent_of(&setup, &voices[0]), agent_of(&setup, &voices[1])];
            let sandboxes = [0, 1].map(|index: usize| agents[index].sandbox(ToolErrors::Return, None).unwrap());
            let steps = interleaving(seed);
            let taken = steps
                .iter()
                .enumerate()
                .map(|(number, step)| take(&agents[step.agent], &voices[step.agent].name, &sandboxes[step.agent], number, *step));
            join_all(taken).await;
            for (index, voice) in voices.iter().enumerate() {
                let own = steps.iter().filter(|step| step.agent == index).count();
                assert_eq!(voice.asked().len(), own, "seed {seed}: {:?}", voice.asked());
                let mark = format!("{} asks", voice.name);
                assert!(voice.asked().iter().all(|asked| asked.contains(&mark)), "seed {seed}: {:?}", voice.asked());
            }
            join_all(agents.iter().map(Agent::close)).await;
        }
        assert_eq!(operator.asked(), [""; 0]);
        setup.gateway.close().await;
    }
}
