use super::settings::{ALL_HOVER, FEW_NEAR, SEEDS};
use super::*;

#[test]
fn the_same_seed_gives_the_same_day() {
    let small = Setting { traffic: Traffic { clients: 50, ..FEW_NEAR.traffic }, ..FEW_NEAR };
    assert_eq!(day(&small, 7), day(&small, 7));
    assert_ne!(day(&small, 7).all.requests, day(&small, 8).all.requests);
}

#[test]
fn a_log_admits_so_many_in_any_window_and_no_fewer() {
    let window = SlidingWindow::new(2, 1).unwrap();
    let mut log = Log::new(window);
    let admitted: Vec<_> = [0, 10, 20, 999, 1_000, 1_001, 1_009, 1_010].map(|now| log.take(now)).into();
    assert_eq!(admitted, [true, true, false, false, true, false, false, true]);
}

#[test]
fn a_counter_is_wrong_for_less_than_3_in_100_000_requests_where_few_go_near_the_limit() {
    let report = Report::of(FEW_NEAR, SEEDS);
    assert!(report.all.requests > 1_500_000);
    assert!(report.all.log_admitted < report.all.requests, "somebody does reach it");
    assert!(report.all.wrong_percent() < 0.003, "{:?}", report.all);
    assert!(report.all.offered_percent() < 0.003, "{:?}", report.all);
}

#[test]
fn where_all_hover_at_the_limit_it_admits_as_much_as_a_log_and_never_twice_the_limit() {
    let all = Report::of(ALL_HOVER, 1..=1).all;
    let more = all.counter_admitted as f64 / all.log_admitted as f64;
    assert!((0.98..1.02).contains(&more), "{more}");
    assert!(all.most_in_a_window < 2 * ALL_HOVER.capacity, "{all:?}");
    assert!(all.wrong_percent() < 10.0, "{all:?}");
}
