//! Tests of VMs that are booted in advance and wait for the next run.

use std::sync::Arc;
use std::time::Duration;

use hyperlight_mcp::sandbox::{Sandboxes, StopReason, WarmVms};
use serde_json::json;

use super::{request, run, sandboxes, value};

const ONE: &str = "export const handler = () => 1";

/// Returns booted sandboxes, after the configured number of VMs is waiting.
async fn warm(settings: WarmVms) -> Arc<Sandboxes> {
    let sandboxes = Arc::new(sandboxes().with_warm_vms(settings));
    sandboxes.boot().unwrap();
    until(&sandboxes, settings.target()).await;
    sandboxes
}

/// Waits until this number of VMs is waiting, for at most a minute.
async fn until(sandboxes: &Sandboxes, vms: usize) {
    let waiting = async {
        while sandboxes.waiting_vms() != vms {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(Duration::from_mins(1), waiting).await.expect("VMs are made and given up");
}

#[tokio::test(flavor = "multi_thread")]
async fn as_many_wait_as_are_asked_for_and_each_that_was_used_is_replaced() {
    let sandboxes = warm(WarmVms { vms: 3, ..WarmVms::default() }).await;
    for _ in 0..5 {
        assert_eq!(value(run(&sandboxes, request(ONE)).await), json!(1));
        until(&sandboxes, 3).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn none_waits_where_none_is_to_or_none_has_room() {
    for settings in [WarmVms { vms: 0, ..WarmVms::default() }, WarmVms { max_bytes: 1, ..WarmVms::default() }] {
        let sandboxes = warm(settings).await;
        assert_eq!(value(run(&sandboxes, request(ONE)).await), json!(1));
        assert_eq!(sandboxes.waiting_vms(), 0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_runs_they_are_given_up_and_the_next_run_has_them_made_again() {
    // This time is long enough to create two VMs, even in an emulated machine.
    let idle_ms = if std::env::var_os("HYPERLIGHT_MCP_EMULATED").is_some() { 6_000 } else { 1_000 };
    let sandboxes = warm(WarmVms { idle_ms, ..WarmVms::default() }).await;
    until(&sandboxes, 0).await;
    assert_eq!(value(run(&sandboxes, request(ONE)).await), json!(1));
    until(&sandboxes, 2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sandboxes_that_rest_have_none_until_they_run_again_and_closed_ones_for_good() {
    let sandboxes = warm(WarmVms::default()).await;
    sandboxes.rest();
    assert_eq!(sandboxes.waiting_vms(), 0);
    assert_eq!(value(run(&sandboxes, request(ONE)).await), json!(1));
    until(&sandboxes, 2).await;
    sandboxes.close();
    assert_eq!(sandboxes.waiting_vms(), 0);
    assert_eq!(value(run(&sandboxes, request(ONE)).await), json!(1));
    assert_eq!(sandboxes.waiting_vms(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn runs_at_once_that_outnumber_the_vms_have_one_each() {
    let sandboxes = warm(WarmVms::default()).await;
    let runs = (0..6).map(|_| run(&sandboxes, request("globalThis.mine ??= 0; mine += 1; export const handler = () => mine")));
    for outcome in futures::future::join_all(runs).await {
        assert_eq!(value(outcome), json!(1));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_guest_that_was_killed_or_ended_is_replaced_without_the_next_run_noticing() {
    let sandboxes = warm(WarmVms { vms: 1, ..WarmVms::default() }).await;
    let mut killed = request("export const handler = () => { for (;;) {} }");
    killed.timeout = Duration::from_millis(100);
    assert_eq!(run(&sandboxes, killed).await.value.unwrap_err().code(), "ERR_RUN_TIMEOUT");
    assert_eq!(value(run(&sandboxes, request(ONE)).await), json!(1));
    let memory = request("export const handler = () => { const a = []; for (;;) a.push('x'.repeat(1 << 20) + a.length) }");
    assert_eq!(run(&sandboxes, memory).await.value.unwrap_err().code(), "ERR_GUEST_MEMORY");
    assert_eq!(value(run(&sandboxes, request(ONE)).await), json!(1));
    let aborted = request(ONE);
    aborted.stop.stop(StopReason::Aborted);
    let _ = run(&sandboxes, aborted).await;
    until(&sandboxes, 1).await;
    assert_eq!(value(run(&sandboxes, request(ONE)).await), json!(1));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_clock_of_a_run_begins_with_the_run_however_long_its_vm_has_waited() {
    let sandboxes = warm(WarmVms::default()).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    let asked = std::time::Instant::now();
    let since = value(run(&sandboxes, request("export const handler = () => performance.now()")).await).as_f64().unwrap();
    let since_asked = asked.elapsed().as_secs_f64() * 1000.0;
    // The least of many differences, as any one of them includes the time in which another program had the processor.
    let difference = "Math.abs(Date.now() - performance.timeOrigin - performance.now())";
    let code = format!("export const handler = () => Math.min(...Array.from({{ length: 50 }}, () => {difference}))");
    let outcome = run(&sandboxes, request(&code)).await;
    assert!(since <= since_asked, "{since} of {since_asked} ms");
    assert!(value(outcome).as_f64().unwrap() < 50.0);
}
