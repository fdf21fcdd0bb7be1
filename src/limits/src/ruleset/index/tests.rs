use super::*;
use crate::address::Cidr;
use crate::descriptor::{Descriptor, Descriptors, Source};
use crate::route::Routes;
use crate::rule::{Condition, Test};

fn is(value: &str) -> Test {
    Test::OneOf(vec![value.as_bytes().into()])
}

/// The index of rules with these conditions, on descriptors that are read from headers of their names.
fn index(rules: impl IntoIterator<Item = Vec<(&'static str, Test)>>) -> Index {
    let mut descriptors = Descriptors::built_in();
    let routes = Routes::new(Vec::new());
    let mut compile = |(name, test): (&str, Test)| {
        let source = Source::Header(name.into());
        let descriptor = descriptors.define(Descriptor { name: name.into(), source, secret: false }).unwrap();
        Compiled::new(&Condition { descriptor, test }, &descriptors, &routes)
    };
    let rules: Vec<Vec<_>> =
        rules.into_iter().map(|rule| rule.into_iter().map(&mut compile).collect()).collect();
    Index::new(&rules)
}

/// How many shapes there are, and the most rules in one place.
fn size(index: &Index) -> (usize, usize) {
    let lists = index.shapes.iter().flat_map(|shape| shape.table.iter()).map(|entry| entry.1.len());
    (index.shapes.len(), lists.max().unwrap_or(0))
}

#[test]
fn no_place_is_crowded_where_conditions_tell_rules_apart() {
    let name = |n: usize| format!("v{n}");
    let shared = |n| vec![("plan", is("gold")), ("user", is(&name(n)))];
    assert_eq!(size(&index((0..1_000).map(shared))), (1, 1), "one plan, distinct users");
    let grid = |n: usize| vec![("plan", is(&name(n % 30))), ("user", is(&name(n / 30)))];
    assert_eq!(size(&index((0..900).map(grid))), (1, 1), "a grid");
    let cube =
        |n: usize| vec![("a", is(&name(n % 10))), ("b", is(&name(n / 10 % 10))), ("c", is(&name(n / 100)))];
    assert_eq!(size(&index((0..1_000).map(cube))), (1, 1), "a cube");
    let blocks = |n: usize| {
        let block = Cidr::parse(&format!("10.{}.{}.0/24", n / 256, n % 256)).unwrap();
        vec![("plan", is("gold")), ("ip", Test::Cidr(block))]
    };
    assert_eq!(size(&index((0..1_000).map(blocks))), (1, 1), "one plan, distinct blocks");
}

#[test]
fn the_order_of_conditions_makes_no_further_shape() {
    let name = |n: usize| format!("v{n}");
    let grid = |n: usize| {
        let mut conditions = vec![("plan", is(&name(n % 30))), ("user", is(&name(n / 30)))];
        conditions.rotate_left(n % 2);
        conditions
    };
    assert_eq!(size(&index((0..900).map(grid))), (1, 1));
}

#[test]
fn rules_that_nothing_tells_apart_lie_together() {
    let same = |_| vec![("plan", is("gold")), ("user", Test::Absent)];
    assert_eq!(size(&index((0..100).map(same))), (1, 100));
    assert_eq!(index((0..100).map(|_| Vec::new())).always.len(), 100);
}

#[test]
fn lists_of_values_are_filed_within_bounds() {
    let many = |name: &str| Test::OneOf((0..100).map(|n| format!("{name}{n}").into_bytes().into()).collect());
    let index = index((0..10).map(|_| vec![("plan", many("p")), ("user", many("u")), ("region", many("r"))]));
    let places: usize = index.shapes.iter().map(|shape| shape.table.len()).sum();
    assert_eq!(places, 100, "10,000 places each would tell these rules apart no better");
    assert_eq!(size(&index), (1, 10));
}
