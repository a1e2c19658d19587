//! Divides a token budget among parts that together cost more than the budget.

/// Divides `tokens` among parts with these `costs`. Small parts get their full cost, and the other parts get equal shares. Parts are served
/// in the order of their costs. Tokens that a part does not use go to the parts that are served later. `take` is called with each part and
/// the tokens that it may use. It returns the number of tokens that the part has used.
pub(super) fn share(mut tokens: usize, costs: &[usize], mut take: impl FnMut(usize, usize) -> usize) {
    let mut order: Vec<usize> = (0..costs.len()).collect();
    order.sort_by_key(|index| (costs[*index], *index));
    for (served, index) in order.into_iter().enumerate() {
        let used = take(index, tokens / (costs.len() - served));
        tokens = tokens.saturating_sub(used);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shares(tokens: usize, costs: &[usize]) -> Vec<usize> {
        let mut given = vec![0; costs.len()];
        share(tokens, costs, |index, allowed| {
            given[index] = allowed.min(costs[index]);
            given[index]
        });
        given
    }

    #[test]
    fn the_small_stay_whole_and_the_large_share_alike() {
        assert_eq!(shares(100, &[1000, 10, 500, 4]), [43, 10, 43, 4]);
        assert_eq!(shares(100, &[10, 20]), [10, 20]);
        assert_eq!(shares(0, &[1, 2]), [0, 0]);
        assert_eq!(shares(5, &[]), [0; 0]);
    }
}
