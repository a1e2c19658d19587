//! Tests of the quality of the search over the tools of all installed servers and a thousand others, and of its guarantees for any query.

#[path = "catalogue/quality.rs"]
mod quality;
#[path = "catalogue/synthetic.rs"]
mod synthetic;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use hyperlight_mcp::catalog::{Hit, Manifest, SearchIndex, SearchOptions, has_words};
use proptest::prelude::*;
use quality::{Quality, queries, unseen_queries};
use serde_json::json;

type Manifests = BTreeMap<String, Arc<Manifest>>;

fn index(manifests: &Manifests) -> SearchIndex {
    let mut index = SearchIndex::default();
    index.update(manifests);
    index
}

fn names(hits: &[Hit]) -> Vec<String> {
    hits.iter().map(|hit| format!("{}.{}", hit.server, hit.tool)).collect()
}

const FIVE: SearchOptions = SearchOptions { limit: 5, servers: None };

#[test]
fn the_catalogue_has_a_thousand_tools_with_distinct_names() {
    let mut count = 0;
    for (server, manifest) in synthetic::services() {
        let names: BTreeSet<String> = manifest.tool_names().into_iter().collect();
        assert_eq!(names.len(), manifest.tools.len(), "{server}");
        count += names.len();
    }
    assert_eq!(count, 1_000);
}

#[test]
fn every_query_has_answers_that_exist() {
    let manifests = synthetic::all();
    let tuned = queries();
    assert!(tuned.len() >= 120, "{}", tuned.len());
    assert!(tuned.iter().filter(|query| query.kind == "typo").count() >= 20);
    for query in tuned.iter().chain(&unseen_queries()) {
        for answer in &query.answers {
            let (server, tool) = answer.split_once('.').unwrap();
            assert!(manifests[server].tool(tool).is_some(), "{}: {answer}", query.text);
        }
    }
}

#[test]
fn nine_of_ten_queries_find_an_answer_among_the_first_five() {
    let index = index(&synthetic::all());
    for queries in [queries(), unseen_queries()] {
        let quality = Quality::measure(&index, &queries);
        println!("{quality}");
        assert!(quality.recall() >= 0.9, "{quality}");
    }
}

fn manifest(tools: &[(&str, &str)]) -> Arc<Manifest> {
    let tools: Vec<_> =
        tools.iter().map(|(name, description)| json!({ "name": name, "description": description, "inputSchema": {} })).collect();
    Arc::new(serde_json::from_value(json!({ "protocolVersion": "", "serverName": "", "serverVersion": "", "tools": tools })).unwrap())
}

fn servers(list: &[(&str, Arc<Manifest>)]) -> Manifests {
    list.iter().map(|(server, manifest)| ((*server).to_owned(), Arc::clone(manifest))).collect()
}

#[test]
fn equally_good_tools_come_by_server_and_then_as_their_manifest_has_them() {
    let one = manifest(&[("zeta", "counts sheep"), ("alpha", "counts sheep")]);
    let two = manifest(&[("theta", "counts sheep"), ("beta", "counts sheep")]);
    let index = index(&servers(&[("two", two), ("one", one)]));
    assert_eq!(names(&index.search("sheep", &FIVE)), ["one.zeta", "one.alpha", "two.theta", "two.beta"]);
}

/// Returns the names of the tools that one server's search finds.
fn found(tools: &[(&str, &str)], query: &str) -> Vec<String> {
    index(&servers(&[("s", manifest(tools))])).search(query, &FIVE).into_iter().map(|hit| hit.tool).collect()
}

#[test]
fn a_name_is_not_taken_for_a_slip() {
    let tools = [("move_shard", "Moves a shard to another node"), ("find_video", "Finds videos and plays songs")];
    assert_eq!(found(&tools, "play the song Baby Shark"), ["find_video"]);
    assert_eq!(found(&tools, "serch for a shart"), ["move_shard"], "with no capital it is one");
    assert_eq!(found(&tools, "Shart"), ["move_shard"], "and if there is nothing else");
}

#[test]
fn a_guess_does_not_win_over_words_that_are_known() {
    let tools = [("add_neuron", "Adds a neuron to a network"), ("compute_mass", "Calculates the mass of a particle")];
    assert_eq!(found(&tools, "compute the mass of a neutron")[0], "compute_mass");
    assert_eq!(found(&tools, "neurom"), ["add_neuron"]);
}

#[test]
fn numbers_and_filler_words_count_less_than_what_is_asked() {
    let tools = [
        ("list_popular", "Lists the 10 best of today in a table of titles, pages and links"),
        ("get_price", "Returns the price of an article"),
    ];
    assert_eq!(found(&tools, "today I would like to know the price of the 10 best phones")[0], "get_price");
    assert_eq!(found(&tools, "today")[0], "list_popular", "if nothing else is asked, they count");
    assert_eq!(found(&[("get_10", ""), ("get_price", "")], "price of 10 items")[0], "get_price");
}

#[test]
fn a_path_is_no_decoy_and_its_format_counts() {
    let tools = [("generate_path_map", "Draws a map of data"), ("read_note", "Reads markdown"), ("read_sheet", "Reads an Excel workbook")];
    assert_eq!(found(&tools, "read /data/map/path.md")[0], "read_note");
    assert_eq!(found(&tools, "read /data/map/path.xlsx")[0], "read_sheet");
    assert!(!found(&tools, "read ~/data/map/notes.md").contains(&"generate_path_map".to_owned()));
    assert_eq!(found(&tools, "/data/map"), ["generate_path_map"], "if there is nothing else, its words are read");
}

#[test]
fn each_intent_of_a_question_finds_its_tool() {
    let tools = [
        ("get_forecast", "Weather of the next days in a city"),
        ("send_email", "Sends an email to a person"),
        ("get_city", "City, state, population and mayor of the city, days of its festivals"),
        ("get_days", "Days, weeks and months of the calendar of a city"),
    ];
    let hits = found(&tools, "Get the weather in the city for the coming days of my visit, then email it to Anna.");
    assert!(hits[..2].contains(&"get_forecast".to_owned()) && hits[..2].contains(&"send_email".to_owned()), "{hits:?}");
}

#[test]
fn tools_of_the_same_name_stand_together() {
    let read = [("read_file", "Reads a file of text")];
    let longer = [("ReadFile", "Reads what is in it, from a disk or from anywhere else, for anyone"), ("file_size", "Size of a file")];
    let index = index(&servers(&[("a", manifest(&read)), ("b", manifest(&longer))]));
    assert_eq!(names(&index.search("file text", &FIVE)), ["a.read_file", "b.ReadFile", "b.file_size"]);
}

#[test]
fn sentences_in_scripts_without_spaces_find_their_tools() {
    let tools = [
        ("bing_search", "使用必应搜索指定的关键词，并返回搜索结果列表"),
        ("weather_cn", "查询城市的天气预报和空气质量"),
        ("route_jp", "駅から駅までの乗換案内を調べる"),
        ("recipe_jp", "料理のレシピと材料を調べる"),
        ("book_th", "จองห้องพักโรงแรมตามวันที่"),
        ("weather_th", "พยากรณ์อากาศของเมือง"),
    ];
    for (query, tool) in [
        ("请帮我用必应搜索最新的新闻。", "bing_search"),
        ("北京后天的天气如何？", "weather_cn"),
        ("新宿駅から東京駅までの行き方を教えて", "route_jp"),
        ("カレーの材料は何ですか", "recipe_jp"),
        ("ช่วยจองโรงแรมในเชียงใหม่", "book_th"),
        ("อากาศที่กรุงเทพวันนี้เป็นอย่างไร", "weather_th"),
    ] {
        assert_eq!(found(&tools, query).first().map(String::as_str), Some(tool), "{query}");
    }
}

#[test]
fn only_the_servers_that_are_asked_for_are_searched() {
    let index = index(&synthetic::all());
    let asked = ["gitlab".to_owned(), "jira".to_owned(), "no such server".to_owned()];
    let hits = index.search("create issue", &SearchOptions { limit: 100, servers: Some(&asked) });
    assert_eq!(hits[0].tool, "createIssue");
    assert!(hits.iter().all(|hit| asked.contains(&hit.server)), "{:?}", names(&hits));
    assert!(index.search("create issue", &SearchOptions { limit: 100, servers: Some(&[]) }).is_empty());
    assert!(index.search("create issue", &SearchOptions { limit: 0, servers: None }).is_empty());
}

#[test]
fn a_word_that_only_another_server_has_is_a_slip_here() {
    let index = index(&servers(&[("a", manifest(&[("pods", "")])), ("b", manifest(&[("ports", "")]))]));
    let hits = index.search("port", &SearchOptions { limit: 5, servers: Some(&["a".to_owned()]) });
    assert_eq!(names(&hits), Vec::<String>::new(), "two slips are too many for four letters");
    let hits = index.search("pord", &SearchOptions { limit: 5, servers: Some(&["a".to_owned()]) });
    assert_eq!(names(&hits), ["a.pods"]);
}

#[test]
fn words_of_any_script_are_found() {
    let tools = manifest(&[("天気予報", "東京の天気を調べる"), ("найти_файл", "Ищет файлы"), ("größe", "ändert"), ("ค้นหา", "ค้นหาไฟล์")]);
    let index = index(&servers(&[("s", tools)]));
    for (query, tool) in [("天気", "天気予報"), ("調", "天気予報"), ("файлы", "найти_файл"), ("GRÖSSE größe", "größe"), ("ไฟล์", "ค้นหา")]
    {
        assert_eq!(index.search(query, &FIVE).first().map(|hit| hit.tool.as_str()), Some(tool), "{query}");
    }
}

#[test]
fn a_changed_manifest_is_found_by_its_new_words_only() {
    let mut index = index(&servers(&[("a", manifest(&[("sheep", "")])), ("b", manifest(&[("goat", "")]))]));
    index.update(&servers(&[("a", manifest(&[("horse", "")])), ("b", manifest(&[("goat", "")]))]));
    assert!(index.search("sheep", &FIVE).is_empty());
    assert_eq!(names(&index.search("horse goat", &FIVE)).len(), 2);
    index.update(&servers(&[("b", manifest(&[("goat", "")]))]));
    assert_eq!(names(&index.search("horse goat", &FIVE)), ["b.goat"]);
    index.update(&Manifests::new());
    assert!(index.search("goat", &FIVE).is_empty());
}

#[test]
fn a_query_of_a_megabyte_is_answered_by_its_beginning() {
    let index = index(&synthetic::all());
    // Returns a word of the letters q to z that no tool contains.
    let word = |number: u32| number.to_string().bytes().map(|digit| char::from(digit - b'0' + b'q')).collect::<String>();
    let noise = (100_000..240_000).map(word).collect::<Vec<_>>().join(" ");
    let hits = index.search(&format!("git commit {noise}"), &FIVE);
    assert_eq!(hits[0].tool, "git_commit");
    for query in ["x".repeat(1_000_000), "猫".repeat(300_000), "aB".repeat(500_000), "_-".repeat(500_000), "é🎉".repeat(100_000)] {
        assert!(index.search(&query, &FIVE).len() <= 5);
    }
}

#[test]
fn tools_made_to_be_costly_are_indexed_as_far_as_is_promised() {
    let words = (0..200_000).map(|number| format!("word{number}")).collect::<Vec<_>>().join(" ");
    let properties: serde_json::Map<_, _> =
        (0..2_000).map(|number| (format!("parameter{number}"), json!({ "description": words[..2_500] }))).collect();
    let schema = json!({ "type": "object", "properties": properties });
    assert!(schema.to_string().len() > 5_000_000);
    let tools = json!([
        { "name": "first", "description": words, "inputSchema": schema },
        { "name": "second", "title": words, "inputSchema": true },
        { "name": "", "inputSchema": null },
    ]);
    let manifest = json!({ "protocolVersion": "", "serverName": "", "serverVersion": "", "tools": tools });
    let index = index(&servers(&[("s", Arc::new(serde_json::from_value(manifest).unwrap()))]));
    assert_eq!(names(&index.search("word7", &FIVE)).first().map(String::as_str), Some("s.second"), "it stands in its title");
    assert_eq!(names(&index.search("second", &FIVE)), ["s.second"]);
    assert_eq!(index.search("parameter3", &FIVE)[0].tool, "first");
}

fn any_manifest() -> impl Strategy<Value = Arc<Manifest>> {
    let name = prop_oneof!["[a-c]{1,3}(_[a-d]{1,4}){0,2}", "[a-zA-Z0-9]{0,12}", "\\PC{0,8}"];
    let tool = (name, "([a-e]{1,5} ){0,6}\\PC{0,10}", prop::collection::vec("\\PC{0,6}", 0..3));
    prop::collection::vec(tool, 0..5).prop_map(|tools| {
        let tool = |(name, description, parameters): (String, String, Vec<String>)| {
            let properties: serde_json::Map<_, _> = parameters.into_iter().map(|parameter| (parameter, json!({}))).collect();
            json!({ "name": name, "description": description, "inputSchema": { "properties": properties } })
        };
        let tools: Vec<_> = tools.into_iter().map(tool).collect();
        Arc::new(serde_json::from_value(json!({ "protocolVersion": "", "serverName": "", "serverVersion": "", "tools": tools })).unwrap())
    })
}

fn any_servers() -> impl Strategy<Value = Manifests> {
    prop::collection::btree_map("[a-d]", any_manifest(), 0..4)
}

proptest! {
    #[test]
    fn hits_are_unique_within_the_limit_and_of_the_servers_asked_for(
        manifests in any_servers(),
        query in "([a-e]{1,5} ){0,4}\\PC{0,20}", limit in 0_usize..6,
        asked in prop::option::of(prop::collection::vec("[a-d]", 0..3)),
    ) {
        let hits = index(&manifests).search(&query, &SearchOptions { limit, servers: asked.as_deref() });
        prop_assert!(hits.len() <= limit);
        prop_assert!(hits.is_empty() || has_words(&query));
        let unique: BTreeSet<_> = hits.iter().map(|hit| (&hit.server, &hit.tool)).collect();
        prop_assert_eq!(unique.len(), hits.len());
        prop_assert!(hits.is_sorted_by(|one, other| one.score >= other.score));
        for hit in &hits {
            prop_assert!(manifests[&hit.server].tool(&hit.tool).is_some() && hit.score.is_finite() && hit.score > 0.0);
            prop_assert!(asked.as_ref().is_none_or(|asked| asked.contains(&hit.server)));
        }
    }

    #[test]
    fn an_update_is_equivalent_to_building_anew(steps in prop::collection::vec(any_servers(), 1..4), query in "[a-e]{1,5}( [a-e]{1,5}){0,3}") {
        let mut updated = SearchIndex::default();
        for manifests in &steps {
            updated.update(manifests);
            let anew = index(manifests);
            prop_assert_eq!(updated.search(&query, &FIVE), anew.search(&query, &FIVE));
        }
    }

    #[test]
    fn a_tool_is_found_by_its_name(manifests in any_servers()) {
        let index = index(&manifests);
        for (server, manifest) in &manifests {
            for tool in manifest.tools.iter().filter(|tool| has_words(&tool.name)) {
                let hits = index.search(&tool.name, &SearchOptions { limit: usize::MAX, servers: None });
                prop_assert!(hits.iter().any(|hit| hit.server == *server && hit.tool == tool.name), "{}", tool.name);
            }
        }
    }
}
