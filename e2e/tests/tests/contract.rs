//! Claims about the API as its users meet it: what they can apply, what is refused and why, and what they see.
//! In: the tables, samples and pages of this repository. Touches a real API server with our definitions.

#[path = "contract/defaults.rs"]
mod defaults;
#[path = "contract/definitions.rs"]
mod definitions;
#[path = "contract/objects.rs"]
mod objects;
#[path = "contract/pages.rs"]
mod pages;
#[path = "contract/place.rs"]
mod place;
#[path = "contract/rules.rs"]
mod rules;
#[path = "contract/view.rs"]
mod view;
