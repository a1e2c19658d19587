//! Parsers for option values.

use crate::limits::LimitChanges;

/// Parses a limit, `NAME=VALUE`, by its name in the config.
///
/// # Errors
/// The problem of the name or the value.
///
/// ```
/// use hyperlight_mcp::cli::limit;
/// assert_eq!(limit("maxQuestions=5"), Ok(("maxQuestions".to_owned(), 5)));
/// assert!(limit("maxQuestion=5").unwrap_err().starts_with("this key is unknown; there are: "));
/// assert!(limit("maxQuestions").is_err());
/// ```
pub fn limit(text: &str) -> Result<(String, u64), String> {
    let (name, value) = text.split_once('=').ok_or("write NAME=VALUE, like runTimeoutMs=120000")?;
    let value = value.parse().map_err(|_| format!("{name} must be a whole number"))?;
    LimitChanges::default()
        .set(name, value)
        .map_err(|problem| if problem.starts_with("must") { format!("{name} {problem}") } else { problem })?;
    Ok((name.to_owned(), value))
}

/// Parses a time into milliseconds: `500ms`, `30s`, `2m`. A number without a unit means seconds.
///
/// # Errors
/// A sentence that explains how to write a time.
///
/// ```
/// use hyperlight_mcp::cli::milliseconds;
/// assert_eq!(milliseconds("1.5s"), Ok(1500));
/// assert_eq!(milliseconds("5"), Ok(5000));
/// assert!(milliseconds("soon").is_err());
/// ```
pub fn milliseconds(text: &str) -> Result<u64, String> {
    let wrong = || "write a time like 500ms, 30s or 2m, from 1 ms to 24 hours".to_owned();
    let digits = text.find(|character: char| !character.is_ascii_digit() && character != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let scale = match unit {
        "ms" => 1.0,
        "" | "s" => 1_000.0,
        "m" => 60_000.0,
        _ => return Err(wrong()),
    };
    let number: f64 = number.parse().map_err(|_| wrong())?;
    let time = (number * scale).round();
    // No limit in this program may be longer than a day.
    if !(1.0..=86_400_000.0).contains(&time) {
        return Err(wrong());
    }
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is between 1 and a day")]
    Ok(time as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_units_and_bounds() {
        let times = ["5", "0.5", "500ms", "2m"].map(milliseconds);
        assert_eq!(times, [Ok(5000), Ok(500), Ok(500), Ok(120_000)]);
        for wrong in ["", "s", "0", "-1s", "1h", "1e3", "99999999m", "1.2.3s", "NaN"] {
            assert!(milliseconds(wrong).is_err(), "{wrong}");
        }
    }
}
