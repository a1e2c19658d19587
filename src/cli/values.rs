//! Parsers for option values.

/// Parses a time into milliseconds: `500ms`, `30s`, `2m`. A number without a unit means milliseconds.
///
/// # Errors
/// A sentence that explains how to write a time.
///
/// ```
/// use hyperlight_mcp::cli::milliseconds;
/// assert_eq!(milliseconds("1.5s"), Ok(1500));
/// assert!(milliseconds("soon").is_err());
/// ```
pub fn milliseconds(text: &str) -> Result<u64, String> {
    let wrong = || "write a time like 500ms, 30s or 2m, from 1 ms to 24 hours".to_owned();
    let digits = text.find(|character: char| !character.is_ascii_digit() && character != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let scale = match unit {
        "" | "ms" => 1.0,
        "s" => 1_000.0,
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
        assert_eq!([milliseconds("500"), milliseconds("500ms"), milliseconds("2m")], [Ok(500), Ok(500), Ok(120_000)]);
        for wrong in ["", "s", "0", "-1s", "1h", "1e3", "99999999m", "1.2.3s", "NaN"] {
            assert!(milliseconds(wrong).is_err(), "{wrong}");
        }
    }
}
