//! Makes the definitions of a schema acceptable for TypeScript. Removes circular aliases, limits intersections of unions, and replaces
//! the names of short types by the types.

use super::types::{Definition, Object, Type, intersection, union};

/// Maximum number of union members that TypeScript has to compute. TypeScript's own limit is 100,000.
const MAX_COMBINATIONS: usize = 1_000;
const MAX_CHAIN: usize = 64;
/// Maximum length in characters of a union or literal that replaces its name.
const MAX_INLINE: usize = 40;

/// Prepares the definitions of a schema for printing. The first definition, which is the schema itself, stays the first.
pub(super) fn finish(mut definitions: Vec<Definition>) -> Vec<Definition> {
    break_circles(&mut definitions);
    let mut counts = vec![None; definitions.len()];
    for id in 0..definitions.len() {
        combinations_of(id, &definitions, &mut counts, 0);
    }
    for definition in &mut definitions {
        limit(&mut definition.value, &counts);
    }
    let inline = substitutes(&definitions);
    for definition in &mut definitions {
        definition.value = rewrite(std::mem::replace(&mut definition.value, Type::Unknown), &|id| inline[id].clone());
    }
    definitions
}

/// Replaces the names in a type. Also simplifies the unions and intersections that contain them.
pub(super) fn rewrite(value: Type, name: &impl Fn(usize) -> Type) -> Type {
    match value {
        Type::Named(id) => name(id),
        Type::Union(members) => union(members.into_iter().map(|member| rewrite(member, name))),
        Type::Intersection(members) => intersection(members.into_iter().map(|member| rewrite(member, name))),
        mut other => {
            for child in other.children_mut() {
                *child = rewrite(std::mem::replace(child, Type::Unknown), name);
            }
            other
        }
    }
}

/// Breaks circles of aliases. TypeScript refuses such circles: `type A = B; type B = A | null`. Each alias in a circle becomes `unknown`.
fn break_circles(definitions: &mut [Definition]) {
    let mut leads_to: Vec<Vec<usize>> = vec![Vec::new(); definitions.len()];
    let mut comes_from = leads_to.clone();
    for (id, definition) in definitions.iter().enumerate() {
        definition.value.direct_names(&mut leads_to[id]);
        for next in &leads_to[id] {
            comes_from[*next].push(id);
        }
    }
    let ends = without_ends(&leads_to, &comes_from);
    let beginnings = without_ends(&comes_from, &leads_to);
    for (id, definition) in definitions.iter_mut().enumerate() {
        if ends[id] && beginnings[id] {
            definition.value = Type::Unknown;
        }
    }
}

/// Returns for each definition whether it is part of a circle or leads into a circle.
fn without_ends(leads_to: &[Vec<usize>], comes_from: &[Vec<usize>]) -> Vec<bool> {
    let mut left: Vec<usize> = leads_to.iter().map(Vec::len).collect();
    let mut remains = vec![true; leads_to.len()];
    let mut ends: Vec<usize> = (0..left.len()).filter(|id| left[*id] == 0).collect();
    while let Some(end) = ends.pop() {
        remains[end] = false;
        for before in &comes_from[end] {
            left[*before] -= 1;
            if left[*before] == 0 {
                ends.push(*before);
            }
        }
    }
    remains
}

/// Returns the number of union members that TypeScript computes for a definition.
fn combinations_of(id: usize, definitions: &[Definition], counts: &mut Vec<Option<usize>>, chain: usize) -> usize {
    if let Some(known) = counts[id] {
        return known;
    }
    if chain > MAX_CHAIN {
        return MAX_COMBINATIONS;
    }
    let mut names = Vec::new();
    definitions[id].value.direct_names(&mut names);
    for name in names {
        combinations_of(name, definitions, counts, chain + 1);
    }
    let count = combinations(&definitions[id].value, counts);
    counts[id] = Some(count);
    count
}

fn combinations(value: &Type, counts: &[Option<usize>]) -> usize {
    match value {
        Type::Named(id) => counts[*id].unwrap_or(MAX_COMBINATIONS),
        Type::Union(members) => members.iter().map(|member| combinations(member, counts)).fold(0, usize::saturating_add),
        Type::Intersection(members) => limited(members, counts).1,
        Type::Boolean | Type::Bytes => 2,
        _ => 1,
    }
}

/// Returns the indexes of an intersection's members that are kept, and the number of their combinations. A member may be left out,
/// because this only widens the type.
fn limited(members: &[Type], counts: &[Option<usize>]) -> (Vec<usize>, usize) {
    let mut order: Vec<(usize, usize)> = members.iter().map(|member| combinations(member, counts)).enumerate().collect();
    order.sort_by_key(|(_, count)| *count);
    let (mut kept, mut product) = (Vec::new(), 1_usize);
    for (index, count) in order {
        let next = product.saturating_mul(count);
        if next <= MAX_COMBINATIONS || kept.is_empty() {
            kept.push(index);
            product = next;
        }
    }
    (kept, product)
}

fn limit(value: &mut Type, counts: &[Option<usize>]) {
    if let Type::Intersection(members) = value {
        let (kept, _) = limited(members, counts);
        let mut index = 0;
        members.retain(|_| {
            index += 1;
            kept.contains(&(index - 1))
        });
    }
    value.children_mut().into_iter().for_each(|child| limit(child, counts));
}

/// Returns the type that is written for each definition: the definition's own type if it is short, and otherwise its name. An alias is
/// replaced by its target.
fn substitutes(definitions: &[Definition]) -> Vec<Type> {
    let mut ends: Vec<Option<usize>> = vec![None; definitions.len()];
    for start in 0..definitions.len() {
        let (mut path, mut id) = (vec![start], start);
        let end = loop {
            match (ends[id], &definitions[id].value) {
                (Some(end), _) => break end,
                (None, Type::Named(next)) => id = *next,
                (None, _) => break id,
            }
            path.push(id);
        };
        for id in path {
            ends[id] = Some(end);
        }
    }
    let substitute = |id: usize| {
        let value = &definitions[id].value;
        if id != 0 && is_short(value) { value.clone() } else { Type::Named(id) }
    };
    ends.into_iter().flatten().map(substitute).collect()
}

fn is_short(value: &Type) -> bool {
    match value {
        Type::Array(item) => item.is_leaf(),
        Type::Union(members) => members.iter().all(Type::is_leaf) && members.iter().map(length).sum::<usize>() <= MAX_INLINE,
        Type::Object(Object { properties, index: Some(index), prefixes, .. }) => {
            properties.is_empty() && prefixes.is_empty() && index.is_leaf()
        }
        other => other.is_leaf() && length(other) <= MAX_INLINE,
    }
}

fn length(leaf: &Type) -> usize {
    match leaf {
        Type::StringLiteral(text) | Type::NumberLiteral(text) => text.len() + 5,
        Type::Bytes => 20,
        _ => 9,
    }
}
