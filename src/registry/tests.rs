//! Decisions of persons and models about servers.

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
    // None of these events lets a model enable the server again.
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
        |registry| registry.disable("a"),
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
