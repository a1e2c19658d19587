//! Tests of the decisions that people and models make about servers.

use super::*;

const OURS: AgentId = AgentId(1);
const OTHER: AgentId = AgentId(2);

fn enable(registry: &Registry, decider: Decider) -> Result<()> {
    registry.enable("a", decider, OURS)
}

#[test]
fn a_model_brings_back_what_a_model_took_and_nothing_that_a_person_did() {
    let registry = Registry::new(Config::default());
    enable(&registry, Decider::Model).unwrap();
    registry.disable_for("a", OURS);
    enable(&registry, Decider::Model).unwrap();
    assert!(registry.is_enabled("a", OURS) && !registry.is_disabled_by_person("a"));

    registry.disable("a");
    // After none of these events can a model enable the server again.
    let between: [fn(&Registry); 3] = [|_| {}, |registry| registry.disable_for("a", OURS), |registry| registry.retire("a")];
    for happens in between {
        happens(&registry);
        let error = enable(&registry, Decider::Model).unwrap_err();
        assert_eq!(error.code(), "ERR_DISABLED_BY_PERSON");
        assert!(!registry.is_enabled("a", OURS) && registry.is_disabled_by_person("a"), "{error}");
    }
    registry.interrupt("a");
    assert!(registry.is_disabled_by_person("a"));
    enable(&registry, Decider::Person).unwrap();
    assert!(registry.is_enabled("a", OURS));
}

#[test]
fn a_model_decides_for_its_own_agent_and_a_person_for_all() {
    let registry = Registry::new(Config::default());
    let seen = || [OURS, OTHER].map(|agent| registry.is_enabled("a", agent));
    enable(&registry, Decider::Model).unwrap();
    assert_eq!(seen(), [true, false]);
    enable(&registry, Decider::Person).unwrap();
    assert_eq!(seen(), [true, true]);
    registry.disable_for("a", OURS);
    assert_eq!(seen(), [false, true]);
    assert!(registry.is_enabled_for_any("a", &[OURS, OTHER]) && !registry.is_enabled_for_any("a", &[OURS]));
    enable(&registry, Decider::Person).unwrap();
    assert_eq!(seen(), [true, true]);
    registry.disable("a");
    assert_eq!(seen(), [false, false]);
    assert!(!registry.is_enabled_for_any("a", &[OURS, OTHER]));
}

#[test]
fn a_model_ends_the_pending_calls_of_its_own_agent_and_a_person_those_of_all() {
    let registry = Registry::new(Config::default());
    let tokens = || [OURS, OTHER].map(|agent| registry.ended_for("a", agent));
    let before = tokens();
    registry.disable_for("a", OURS);
    assert_eq!(before.map(|token| token.is_cancelled()), [true, false]);
    let after = tokens();
    assert!(!after[0].is_cancelled());
    registry.disable("a");
    assert_eq!(after.map(|token| token.is_cancelled()), [true, true]);
}

#[test]
fn an_interruption_keeps_the_decisions_of_models_and_a_revocation_does_not() {
    let registry = Registry::new(Config::default());
    enable(&registry, Decider::Model).unwrap();
    registry.interrupt("a");
    assert!(registry.is_enabled("a", OURS));
    registry.retire("a");
    assert!(!registry.is_enabled("a", OURS));
}

#[test]
fn nothing_is_left_of_an_agent_that_has_ended() {
    let registry = Registry::new(Config::default());
    enable(&registry, Decider::Model).unwrap();
    registry.forget_agent(OURS);
    assert!(!registry.is_enabled_for_any("a", &[OURS, OTHER]));
}

#[test]
fn what_the_config_disables_is_not_enabled_whoever_enabled_it_before() {
    let config = |disabled: bool| {
        let text = format!(r#"{{ "mcpServers": {{ "a": {{ "command": "x", "disabled": {disabled} }} }} }}"#);
        crate::config::parse_text(&text, "c", 9).unwrap()
    };
    let registry = Registry::new(config(false));
    enable(&registry, Decider::Person).unwrap();
    assert!(registry.is_enabled("a", OURS));
    registry.replace(config(true));
    assert!(!registry.is_enabled("a", OURS));
}

#[test]
fn a_server_that_a_person_left_out_stays_disabled_where_a_later_config_brings_it() {
    let config = |text: &str| crate::config::parse_text(text, "c", 9).unwrap();
    let only = ["a".to_owned()];
    let registry = Registry::limited_to(Some(&only), config(r#"{ "mcpServers": { "a": { "command": "x" } } }"#));
    assert!(!registry.is_disabled_by_person("a"));
    registry.replace(config(r#"{ "mcpServers": { "b": { "command": "x" } } }"#));
    assert!(registry.is_disabled_by_person("b"));
    assert_eq!(registry.enable("b", Decider::Model, OURS).unwrap_err().code(), "ERR_DISABLED_BY_PERSON");
}

#[test]
fn every_decision_about_a_server_counts() {
    let registry = Registry::new(Config::default());
    let decide: [fn(&Registry); 5] = [
        |registry| registry.disable_for("a", OURS),
        |registry| drop(registry.disable("a")),
        |registry| registry.retire("a"),
        |registry| registry.interrupt("a"),
        |registry| registry.approval_changed("a"),
    ];
    let mut last = 0;
    for decide in decide {
        decide(&registry);
        let decisions = registry.decisions("a", OURS);
        assert!(decisions > last, "{decisions} after {last}");
        assert_eq!(registry.decisions("b", OURS), 0);
        last = decisions;
    }
}

#[test]
fn what_lost_its_approval_can_be_enabled_by_whoever_may_once_it_is_approved_again() {
    let registry = Registry::new(Config::default());
    enable(&registry, Decider::Person).unwrap();
    registry.retire("a");
    assert!(!registry.is_enabled("a", OURS));
    enable(&registry, Decider::Model).unwrap();
}

/// A registry with server `a`, and its variants `a@north` and `a@south`.
fn with_variants(only: Option<&[String]>) -> Registry {
    Registry::limited_to(only, config_with("a"))
}

fn config_with(server: &str) -> Config {
    let profile = |value: &str| serde_json::json!({ "servers": { server: { "env": { "STAGE": value } } } });
    let profiles = serde_json::json!({ "north": profile("north"), "south": profile("south") });
    let config = serde_json::json!({ "mcpServers": { server: { "command": "x" } }, "profiles": profiles });
    crate::config::parse_text(&config.to_string(), "c", 9).unwrap()
}

fn seen(registry: &Registry) -> Vec<String> {
    registry.enabled_servers(OURS).iter().map(|server| server.name.clone()).collect()
}

#[test]
fn a_variant_is_enabled_and_disabled_with_its_server() {
    let registry = with_variants(None);
    enable(&registry, Decider::Person).unwrap();
    assert_eq!(seen(&registry), ["a", "a@north", "a@south"]);
    assert!(registry.is_enabled("a@north", OTHER) && registry.is_enabled_for_any("a@north", &[OTHER]));
    let (ended, decisions) = (registry.ended_for("a@north", OURS), registry.decisions("a@north", OURS));
    assert_eq!(registry.disable("a"), ["a", "a@north", "a@south"]);
    assert!(ended.is_cancelled() && registry.decisions("a@north", OURS) > decisions);
    assert!(seen(&registry).is_empty() && registry.is_disabled_by_person("a@north"));
    assert_eq!(registry.enable("a@north", Decider::Model, OURS).unwrap_err().code(), "ERR_DISABLED_BY_PERSON");
    registry.enable_variants("a");
    assert!(seen(&registry).is_empty(), "no program undoes what a person has disabled");
    enable(&registry, Decider::Person).unwrap();
    assert_eq!(seen(&registry), ["a", "a@north", "a@south"]);
}

#[test]
fn a_decision_about_the_variant_itself_counts_before_one_about_its_server() {
    let registry = with_variants(None);
    assert_eq!(registry.disable("a@north"), ["a@north"]);
    enable(&registry, Decider::Person).unwrap();
    assert_eq!(seen(&registry), ["a", "a@south"]);
    registry.enable("a@north", Decider::Person, OURS).unwrap();
    assert_eq!(registry.disable("a"), ["a", "a@south"]);
    assert_eq!(seen(&registry), ["a@north"]);
    // A model's decision is for its own agent, and about the variant that the agent has.
    enable(&registry, Decider::Person).unwrap();
    registry.disable_for("a@south", OURS);
    assert!(!registry.is_enabled("a@south", OURS) && registry.is_enabled("a@south", OTHER));
    registry.disable_for("a", OURS);
    assert!(!registry.is_enabled("a", OURS) && registry.is_enabled("a@north", OURS));
}

#[test]
fn variants_stay_enabled_without_their_server_until_it_is_gone_from_the_config() {
    let registry = with_variants(None);
    registry.enable_variants("a");
    assert_eq!(seen(&registry), ["a@north", "a@south"]);
    enable(&registry, Decider::Person).unwrap();
    registry.interrupt("a");
    registry.retire("a");
    assert_eq!(seen(&registry), ["a@north", "a@south"], "their approvals are their own");
    registry.replace(config_with("b"));
    for name in ["a", "a@north", "a@south"] {
        registry.retire(name);
    }
    registry.replace(config_with("a"));
    assert!(seen(&registry).is_empty());
}

#[test]
fn variants_that_are_made_later_follow_their_server_too() {
    let profile = |key: &str| serde_json::json!({ "servers": { "a": { "env": { key: "x" } } } });
    let profiles = serde_json::json!({ "one": profile("ONE"), "two": profile("TWO") });
    let config = serde_json::json!({ "mcpServers": { "a": { "command": "x" } }, "profiles": profiles });
    let registry = Registry::new(crate::config::parse_text(&config.to_string(), "c", 9).unwrap());
    enable(&registry, Decider::Person).unwrap();
    registry.make_variants(&["one".to_owned(), "two".to_owned()]);
    assert_eq!(seen(&registry), ["a", "a@one", "a@one+two", "a@two"]);
}

#[test]
fn only_the_variants_that_a_person_has_not_left_out_follow() {
    let registry = with_variants(Some(&["a@north".to_owned()]));
    registry.enable_variants("a");
    assert_eq!(seen(&registry), ["a@north"]);
    assert!(registry.is_disabled_by_person("a") && registry.is_disabled_by_person("a@south"));
}
