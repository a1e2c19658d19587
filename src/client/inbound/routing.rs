//! Finds the call that caused a question of the server.
//!
//! Over HTTP, the stream identifies the call. Since MCP 2026-07-28, the question comes in the call's own result. Over stdio with an older
//! version, nothing identifies the call. The recipient is then certain only if a single caller has calls in flight. A question must never
//! reach the wrong caller, so nobody is asked an ambiguous question.

/// The destination of a question.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::client) enum Route {
    /// The destination is the caller of this call.
    Call(u64),
    /// The question does not belong to a call, because no call can have caused it.
    Outside,
    /// The destination is unknown, because calls of more than one caller can have caused the question.
    Ambiguous,
}

/// A call in flight: its key and its caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::client) struct Candidate {
    pub(in crate::client) key: u64,
    pub(in crate::client) caller: u64,
}

/// The origin of a question, as far as the transport can determine it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::client) enum Origin {
    /// The question came on the HTTP stream of this call, or in its result.
    Call(u64),
    /// The question came on a stream that belongs to no call, or that belongs to a call that is over.
    NoCall,
    Unknown,
}

impl Origin {
    /// Returns the destination of a question if the calls in flight are not taken into account.
    pub(in crate::client) fn known(self) -> Route {
        match self {
            Self::Call(key) => Route::Call(key),
            Self::NoCall => Route::Outside,
            Self::Unknown => Route::Ambiguous,
        }
    }
}

pub(in crate::client) fn route(origin: Origin, in_flight: &[Candidate]) -> Route {
    match (origin, in_flight) {
        (Origin::Unknown, []) => Route::Outside,
        (Origin::Unknown, [first, rest @ ..]) if rest.iter().all(|other| other.caller == first.caller) => {
            // All calls of this caller are equally suitable, because the same person is asked for each. The latest call is used.
            Route::Call(rest.last().unwrap_or(first).key)
        }
        _ => origin.known(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn calls(pairs: &[(u64, u64)]) -> Vec<Candidate> {
        pairs.iter().map(|&(key, caller)| Candidate { key, caller }).collect()
    }

    #[test]
    fn a_stream_that_belongs_to_a_call_decides() {
        assert_eq!(route(Origin::Call(7), &calls(&[(7, 1), (8, 2)])), Route::Call(7));
        assert_eq!(route(Origin::NoCall, &calls(&[(7, 1)])), Route::Outside);
    }

    #[test]
    fn without_a_stream_only_a_single_caller_can_be_meant() {
        assert_eq!(route(Origin::Unknown, &[]), Route::Outside);
        assert_eq!(route(Origin::Unknown, &calls(&[(7, 1)])), Route::Call(7));
        assert_eq!(route(Origin::Unknown, &calls(&[(7, 1), (8, 1)])), Route::Call(8));
        assert_eq!(route(Origin::Unknown, &calls(&[(7, 1), (8, 2), (9, 1)])), Route::Ambiguous);
    }

    proptest::proptest! {
        #[test]
        fn nobody_but_the_only_caller_is_ever_guessed(callers in proptest::collection::vec(0_u64..4, 0..8)) {
            let in_flight: Vec<_> = callers.iter().zip(0..).map(|(&caller, key)| Candidate { key, caller }).collect();
            if let Route::Call(key) = route(Origin::Unknown, &in_flight) {
                let chosen = in_flight.iter().find(|call| call.key == key).unwrap().caller;
                proptest::prop_assert!(callers.iter().all(|caller| *caller == chosen));
            }
        }
    }
}
