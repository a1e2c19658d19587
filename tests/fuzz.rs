//! Runs the fuzz targets over their corpus, and over some thousands of inputs derived from it, which are the same in each run.

#[path = "fuzz/mutate.rs"]
mod mutate;
#[path = "fuzz/targets.rs"]
mod targets;

use mutate::{Random, corpus, mutate};

const ROUNDS: usize = 3_000;

fn replay(name: &str) {
    assert!(targets::TARGETS.iter().any(|(known, _)| *known == name));
    let seeds = corpus(name);
    for seed in &seeds {
        targets::run(name, seed);
    }
    let mut random = Random::new(0x9E37_79B9);
    for _ in 0..ROUNDS {
        targets::run(name, &mutate(&mut random, &seeds));
    }
}

#[test]
fn any_config_is_read_or_refused() {
    replay("config");
}

#[test]
fn the_config_of_any_program_is_read_or_refused() {
    replay("import");
}

#[test]
fn what_completes_a_line_begins_like_it() {
    replay("command");
}

#[test]
fn a_template_loses_nothing() {
    replay("substitution");
}

#[test]
fn any_environment_file_is_read_or_refused() {
    replay("environment_file");
}

#[test]
fn what_is_sanitised_holds_nothing_that_hides() {
    replay("sanitiser");
}

#[test]
fn no_two_things_share_a_form() {
    replay("canonical");
}

#[test]
fn no_file_is_sound_that_was_not_written_here() {
    replay("approvals");
}

#[test]
fn any_code_is_looked_at() {
    replay("script");
}

#[test]
fn any_url_leads_to_an_allowed_host_or_nowhere() {
    replay("fetch");
}

#[test]
fn no_header_that_code_sets_is_more_than_one_header_of_its_own() {
    replay("headers");
}

#[test]
fn any_page_becomes_text() {
    replay("page");
}

#[test]
fn any_answer_of_a_model_is_read() {
    replay("plan");
}

#[test]
fn any_question_for_a_name_and_any_packet_is_read() {
    replay("border");
}

#[test]
fn every_target_has_a_test() {
    assert_eq!(targets::TARGETS.len(), 14);
}

#[test]
fn the_script_runs_every_target() {
    let script = include_str!("../scripts/fuzz");
    let line = script.lines().find_map(|line| line.split_once("|| targets=(")).expect("the line with all targets");
    let mut listed: Vec<&str> = line.1.trim_end_matches(')').split(' ').collect();
    let mut known = targets::TARGETS.map(|(name, _)| name);
    listed.sort_unstable();
    known.sort_unstable();
    assert_eq!(listed, known);
}
