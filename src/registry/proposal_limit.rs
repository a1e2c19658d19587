//! The limit for proposals of servers by the models of an agent within an hour. The store keeps the times of the proposals, so the limit
//! applies to all processes with the same state folder together. The functions of this module have no side effects.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::error::{Error, Result};
use crate::store::Rows;

/// The maximum number of servers that the models of one agent can add or change within [`PERIOD`]. There is a limit because a person has to
/// read each request.
const MAX_PROPOSALS: usize = 20;
const PERIOD: Duration = Duration::from_hours(1);
/// The row of the operator's own agent. No other agent's name is empty.
const OPERATOR: &str = "";

/// Records a proposal of a model in the rows of the store. Agents of the same name share the limit, so that a new agent of the same name
/// does not get new proposals. `owner` is `None` for the operator's own agent. Removes all times that are more than an hour old, for all
/// agents. Also removes times after `now`. Otherwise, if the clock was wrong once, proposals could be refused for a long time.
///
/// # Errors
/// `ERR_TOO_MANY_PROPOSALS` if the agent's models have made too many proposals in the last hour.
pub(crate) fn take_proposal(rows: &mut Rows, owner: Option<&str>, now: SystemTime) -> Result<()> {
    let now = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let recent = |body: &[u8]| -> Vec<u64> {
        let times: Vec<u64> = serde_json::from_slice(body).unwrap_or_default();
        times.into_iter().filter(|time| now.checked_sub(*time).is_some_and(|age| age < PERIOD.as_secs())).collect()
    };
    rows.retain(|_, body| !recent(body).is_empty());
    let owner = owner.unwrap_or(OPERATOR);
    let mut times = rows.get(owner).map(|body| recent(body)).unwrap_or_default();
    if times.len() >= MAX_PROPOSALS {
        let what = "proposals within an hour, as a person has to read each. Ask the user, and try again later";
        return Err(Error::TooManyProposals { what, limit: MAX_PROPOSALS });
    }
    times.push(now);
    rows.insert(owner.to_owned(), serde_json::json!(times).to_string().into_bytes().into());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn models_of_one_name_make_a_limited_number_of_proposals_an_hour() {
        let mut rows = Rows::new();
        let start = UNIX_EPOCH + Duration::from_hours(500_000);
        let mut take = |owner, now| take_proposal(&mut rows, owner, now);
        for _ in 0..MAX_PROPOSALS {
            take(Some("a"), start).unwrap();
        }
        assert_eq!(take(Some("a"), start).unwrap_err().code(), "ERR_TOO_MANY_PROPOSALS");
        assert!(take(Some("a"), start + PERIOD / 2).is_err());
        assert!(take(Some("b"), start).is_ok() && take(None, start).is_ok());
        assert!(take(Some("a"), start + PERIOD).is_ok());
        assert_eq!(rows.len(), 1, "what no longer counts is removed: {rows:?}");
    }

    #[test]
    fn times_of_a_clock_that_was_wrong_do_not_count() {
        let mut rows = Rows::new();
        let start = UNIX_EPOCH + Duration::from_hours(500_000);
        for _ in 0..MAX_PROPOSALS {
            take_proposal(&mut rows, None, start + PERIOD * 1_000).unwrap();
        }
        assert!(take_proposal(&mut rows, None, start).is_ok());
    }
}
