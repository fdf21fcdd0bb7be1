//! `routes`, and the routes that rules name beside them.

use super::text;
use crate::json::fault::excerpt;
use crate::json::spot::Spot;
use hashbrown::HashSet;
use limits::route::{Route, Routes};

/// The most routes.
pub(super) const ROUTES_MAX: usize = 20_000;
/// The longest route, in bytes.
const ROUTE_BYTES_MAX: usize = 1_024;

/// The routes so far, each once.
#[derive(Default)]
pub(super) struct RouteTable {
    routes: Vec<Route>,
    shapes: HashSet<String>,
}

// === impl RouteTable ===

impl RouteTable {
    /// Reads `routes`, which may be missing.
    pub(super) fn read(spot: Option<Spot<'_>>) -> Self {
        let mut table = Self::default();
        if let Some(spot) = spot
            && let Some(items) = spot.list(ROUTES_MAX)
        {
            spot.each(items, |_, item| {
                let before = table.routes.len();
                if table.add(item).is_some() && before == table.routes.len() {
                    item.fault("matches the same requests as an earlier one; keep one");
                }
            });
        }
        table
    }

    /// Adds the route that stands at `spot`, unless one like it is there; gives its text.
    pub(super) fn add(&mut self, spot: &Spot<'_>) -> Option<String> {
        let written = spot.text(ROUTE_BYTES_MAX)?;
        let method = written.split(' ').next().unwrap_or_default();
        if method != "*" && written.contains(' ') && !text::is_method(spot, method) {
            return None;
        }
        let route = match Route::parse(written) {
            Ok(route) => route,
            Err(error) => {
                spot.fault(format_args!("\"{}\" is no route: {error}", excerpt(written)));
                return None;
            }
        };
        if self.shapes.contains(&shape(&route)) {
            return Some(route.text().to_owned());
        }
        if self.routes.len() >= ROUTES_MAX {
            spot.fault(format_args!("is one more than the {ROUTES_MAX} routes that are allowed"));
            return None;
        }
        self.shapes.insert(shape(&route));
        let text = route.text().to_owned();
        self.routes.push(route);
        Some(text)
    }

    pub(super) fn into_routes(self) -> Routes {
        Routes::new(self.routes)
    }
}

/// A route without the names of its parameters, and without letter case, which matching ignores.
fn shape(route: &Route) -> String {
    let segment =
        |text: &str| if text.starts_with('{') { "{}".to_owned() } else { text.to_ascii_lowercase() };
    route.text().split('/').map(segment).collect::<Vec<_>>().join("/")
}
