//! Lists tools of the same name that different servers have together, so that a reader compares them.

use super::Hit;
use super::words::name_chunk;

/// Moves each hit behind the best hit with the same name, and gives it the score of that hit. No hit is added or left out.
pub(super) fn together(hits: Vec<Hit>) -> Vec<Hit> {
    let mut groups: Vec<(String, Vec<Hit>)> = Vec::new();
    for mut hit in hits {
        let name = plain_name(&hit.tool);
        let twins = groups.iter_mut().find(|(known, twins)| *known == name && twins.iter().all(|twin| twin.server != hit.server));
        if let Some((_, twins)) = twins {
            hit.score = twins[0].score;
            twins.push(hit);
        } else {
            groups.push((name, vec![hit]));
        }
    }
    groups.into_iter().flat_map(|(_, twins)| twins).collect()
}

/// Returns a name without case, separators and numbers: `Weather_1_GetWeather` and `weather2_get_weather` are the same.
fn plain_name(name: &str) -> String {
    let plain: String = name_chunk(name).parts.into_iter().filter(|part| !part.bytes().all(|byte| byte.is_ascii_digit())).collect();
    if plain.is_empty() { name.to_owned() } else { plain }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(hits: &[(&str, &str)]) -> Vec<String> {
        let hit = |(index, (server, tool)): (usize, &(&str, &str))| {
            let score = 9.0 - f64::from(u8::try_from(index).unwrap());
            Hit { server: (*server).to_owned(), tool: (*tool).to_owned(), score }
        };
        let hits = together(hits.iter().enumerate().map(hit).collect());
        assert!(hits.is_sorted_by(|one, other| one.score >= other.score), "{hits:?}");
        hits.into_iter().map(|hit| format!("{}.{}", hit.server, hit.tool)).collect()
    }

    #[test]
    fn tools_that_two_servers_have_stand_together() {
        let hits = [("a", "Weather_1_GetWeather"), ("a", "forecast"), ("b", "weather2_get_weather"), ("c", "forecasts")];
        assert_eq!(order(&hits), ["a.Weather_1_GetWeather", "b.weather2_get_weather", "a.forecast", "c.forecasts"]);
    }

    #[test]
    fn tools_of_one_server_are_no_twins() {
        assert_eq!(
            order(&[("a", "get_1"), ("b", "x"), ("a", "get_2"), ("a", "?"), ("b", "!")]),
            ["a.get_1", "b.x", "a.get_2", "a.?", "b.!"]
        );
    }
}
