use super::*;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use proptest::prelude::*;
use regex::Regex;

/// Patterns of one character of a value: unreserved, unreserved without the dot, or also reserved.
const PLAIN: &str = "(?:[A-Za-z0-9._~-]|%[0-9A-Fa-f]{2})";
const LABEL: &str = "(?:[A-Za-z0-9_~-]|%[0-9A-Fa-f]{2})";
const RESERVED: &str = "(?:[A-Za-z0-9._~:/@!$&'()*+,;=-]|%[0-9A-Fa-f]{2})";

/// Returns the regular expression that has the meaning of a template.
fn pattern(template: &str) -> Regex {
    let (mut pattern, mut rest) = ("^".to_owned(), template);
    while let Some((literal, (expression, after))) =
        rest.split_once('{').and_then(|(literal, after)| Some((literal, after.split_once('}')?)))
    {
        pattern.push_str(&regex::escape(literal));
        pattern.push_str(&expression_pattern(expression).unwrap());
        rest = after;
    }
    Regex::new(&format!("{pattern}{}$", regex::escape(rest))).unwrap()
}

fn expression_pattern(expression: &str) -> Option<String> {
    let operator = expression.chars().next().filter(|first| !is_variable_character(*first));
    let names = &expression[operator.map_or(0, char::len_utf8)..];
    let variables: Vec<(&str, bool)> =
        names.split(',').map(|name| name.strip_suffix('*').map_or((name, false), |name| (name, true))).collect();
    if variables.iter().any(|(name, _)| name.is_empty() || !name.chars().all(is_variable_character)) {
        return None;
    }
    let several = variables.len() > 1 || variables.iter().any(|(_, explodes)| *explodes);
    let keys = || variables.iter().map(|(name, _)| regex::escape(name)).collect::<Vec<_>>().join("|");
    Some(match operator {
        None if several => format!("{PLAIN}+(?:,{PLAIN}+)*"),
        None => format!("{PLAIN}+"),
        Some('+') => format!("{RESERVED}+"),
        Some('#') => format!("(?:#{RESERVED}+)?"),
        Some('.') if several => format!(r"(?:\.{LABEL}+)*"),
        Some('.') => format!(r"(?:\.{LABEL}+)?"),
        Some('/') if several => format!("(?:/{PLAIN}+)*"),
        Some('/') => format!("(?:/{PLAIN}+)?"),
        Some('?') => format!(r"(?:\?(?:{0})={PLAIN}*(?:&(?:{0})={PLAIN}*)*)?", keys()),
        Some('&') => format!("(?:&(?:{0})={PLAIN}*)*", keys()),
        Some(_) => return None,
    })
}

fn matches(template: &str, uri: &str) -> bool {
    UriTemplate::parse(template).unwrap().matches(uri)
}

#[test]
fn each_kind_of_expression_takes_what_it_expands_to() {
    for (template, uri) in [
        ("memo://{id}", "memo://1"),
        ("memo://{id}", "memo://a%20b%2Fc"),
        ("memo://{a}/x/{b}", "memo://1/x/2"),
        ("memo://{a,b}", "memo://1,2"),
        ("file:///{+path}", "file:///a/b.txt"),
        ("file://{/path*}", "file:///a/b"),
        ("file://{/a,b}", "file:///a/b"),
        ("file:///{name}{.extension}", "file:///a.txt"),
        ("search://all{?q,limit}", "search://all?q=x&limit=5"),
        ("search://all{?q,limit}", "search://all?limit="),
        ("search://all{?q}", "search://all"),
        ("search://all?x=1{&q}", "search://all?x=1&q=2"),
        ("page://a{#part}", "page://a#b"),
        ("plain://a.b", "plain://a.b"),
    ] {
        assert!(matches(template, uri), "{template} {uri}");
    }
}

#[test]
fn what_leads_elsewhere_follows_no_template() {
    for (template, uri) in [
        ("memo://{id}", "memo://"),
        ("memo://{id}", "memo://a/b"),
        ("memo://{id}", "memo://a?b"),
        ("memo://{id}", "memo://a b"),
        ("memo://{id}", "memo://a%2"),
        ("memo://{id}", "xmemo://a"),
        ("memo://{id}", "memo://a\n"),
        ("http://{host}/x", "http://me@evil/x"),
        ("http://{host}/x", "http://evil:80/x"),
        ("plain://a.b", "plain://axb"),
        ("file:///logs/{name}", "file:///logs/.."),
        ("file:///logs/{name}", "file:///logs/%2E%2e"),
        ("file:///logs/{name}", "file:///logs/..%2f..%2fetc%2fpasswd"),
        ("file:///logs/{name}", "file:///logs/%252e%252e%252fetc"),
        ("file:///logs/{name}", "file:///logs/..%5Cetc"),
        ("file:///logs/{name}", "file:///logs/a%00"),
        ("file:///logs/{name}", "file:///logs/%FF"),
        ("file:///logs/{name}", "file:///logs/%2525252541"),
        ("file:///{+path}", "file:///logs/../etc/passwd"),
        ("file:///{+path}", "file:///./etc"),
        ("file:///{+path}", "file:///a?b"),
        ("search://all{?q}", "search://all?other=1"),
    ] {
        assert!(!matches(template, uri), "{template} {uri}");
    }
}

#[test]
fn what_is_not_known_is_no_template() {
    for text in
        ["a{", "a}", "{}", "{a", "a}b{c}", "{;x}", "{x:3}", "{|x}", "{a b}", "{x**}", "{{a}}", &"x".repeat(3_000), &"{a}".repeat(33)]
    {
        assert!(UriTemplate::parse(text).is_none(), "{text}");
    }
}

#[test]
fn the_work_for_one_uri_is_limited_however_many_templates_there_are() {
    let templates: Vec<String> = (0..2_000)
        .map(|index| {
            let names = (0..22).map(|name| format!("v{name}")).collect::<Vec<_>>().join(",");
            let expressions = (0..20).map(|at| format!("{{{}{names}}}", ["+a,", "", "/", "?"][at % 4].trim_end_matches("a,")));
            format!("a://{}{index}", expressions.collect::<Vec<_>>().join("b"))
        })
        .collect();
    let uri = format!("a://{}", "b.b/".repeat(2_000));
    let mut matcher = TemplateMatcher::new(&uri);
    let began = std::time::Instant::now();
    let tried = templates.iter().filter(|template| matcher.matches(template).is_some()).count();
    eprintln!("TIME {:?} {tried}", began.elapsed());
    assert!(tried > 10 && matcher.untried() == templates.len() - tried, "{tried}");
    // It takes about 30 ms, and took seconds when each template was compiled.
    assert!(began.elapsed() < std::time::Duration::from_secs(1), "{:?}", began.elapsed());
    // A template with another beginning needs no work.
    assert_eq!(matcher.matches("b://{id}"), Some(false));
    assert_eq!(TemplateMatcher::new("memo://..").matches("memo://{id}"), Some(false));
}

#[test]
fn no_ordinary_server_has_too_many_templates_for_a_uri() {
    let uri = format!("https://api.example.com/v1/{}", "x".repeat(80));
    let mut matcher = TemplateMatcher::new(&uri);
    let templates: Vec<String> = (0..4_000).map(|index| format!("https://api.example.com/v1/{{id}}/{index}{{?page}}")).collect();
    assert!(templates.iter().all(|template| matcher.matches(template) == Some(false)));
    assert_eq!((matcher.matches("https://api.example.com/v1/{id}"), matcher.untried()), (Some(true), 0));
}

proptest! {
    #[test]
    fn a_template_matches_as_the_regular_expression_of_its_meaning(
        parts in proptest::collection::vec(("[ab./,&?#=%]{0,2}", "[+#./?&]?[ab]{1,2}(,b){0,2}\\*?"), 0..4),
        end in "[ab/]{0,2}",
        uris in proptest::collection::vec("[ab./,&?#=%4-]{0,14}", 1..12),
    ) {
        let template: String = parts.iter().map(|(literal, expression)| format!("{literal}{{{expression}}}")).chain([end]).collect();
        let (parsed, pattern) = (UriTemplate::parse(&template).unwrap(), pattern(&template));
        for uri in uris {
            prop_assert_eq!(parsed.expands_to(uri.as_bytes()), pattern.is_match(&uri), "{} {}", template, uri);
        }
    }

    #[test]
    fn what_a_template_expands_to_matches(parts in proptest::collection::vec((0_usize..7, "[ab./]{0,2}", "[ab]{1,2}|%4a", "[ab.]{0,2}"), 1..6)) {
        let (mut template, mut uri) = ("x:".to_owned(), "x:".to_owned());
        for (kind, literal, one, two) in parts {
            let label = two.replace('.', "-");
            let (expression, text) = match kind {
                0 => ("{a,b}", format!("{one},{one}")),
                1 => ("{+a}", format!("{one}/{two}")),
                2 => ("{#a}", format!("#{one}")),
                3 => ("{.a*}", format!(".{one}.b{label}")),
                4 => ("{/a*}", format!("/{one}/b{two}")),
                5 => ("{?a,b}", format!("?a={two}&b={one}")),
                _ => ("{&aa,b}", format!("&b={one}&aa=")),
            };
            template.push_str(&literal);
            template.push_str(expression);
            uri.push_str(&literal);
            uri.push_str(&text);
        }
        prop_assert!(UriTemplate::parse(&template).unwrap().expands_to(uri.as_bytes()), "{} {}", template, uri);
        prop_assert!(pattern(&template).is_match(&uri), "{} {}", template, uri);
    }

    #[test]
    fn any_value_that_is_encoded_follows_the_template_unless_it_is_a_path_of_dots(value in "[a-z0-9 ./%ß&?#-]{1,12}") {
        let uri = format!("memo://{}/x", utf8_percent_encode(&value, NON_ALPHANUMERIC));
        let follows = matches("memo://{id}/x", &uri);
        match readings(&format!("memo://{value}")) {
            // The value itself contains percent-encoding, and is decoded again. So the URI may be refused.
            Some(_) => {}
            None => prop_assert!(!follows, "{}", uri),
        }
        if !value.contains(['.', '%', '/']) {
            prop_assert!(follows, "{}", uri);
        }
    }

    #[test]
    fn whatever_is_asked_for_it_is_answered(template in "[a-z{}+/?,*:;.#&%-]{0,30}", uri in any::<String>()) {
        let _ = UriTemplate::parse(&template).map(|template| template.matches(&uri));
        // A template without expressions matches only the URI with the same text.
        if let Some(parsed) = UriTemplate::parse(&template).filter(|_| !template.contains('{')) {
            prop_assert_eq!(parsed.matches(&uri), template == uri && readings(&uri).is_some());
        }
    }

    #[test]
    fn what_follows_a_template_stays_below_its_literal_start_however_it_is_decoded(rest in "[a-z./%2eEfF\\\\]{0,20}") {
        let uri = format!("file:///logs/{rest}");
        if matches("file:///logs/{+path}", &uri) {
            for reading in readings(&uri).unwrap() {
                let path = reading.strip_prefix("file:///logs/").unwrap();
                let climbs = path.split(['/', '\\']).any(|segment| segment == "..");
                prop_assert!(!climbs, "{}", reading);
            }
        }
    }
}
