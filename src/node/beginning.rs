//! As what a node starts: as the member that it was, as one that joins, or in the place of another.

use super::{NodeError, NodeOptions};
use crate::base::clock::Clock;
use crate::config::Settings;
use crate::repair::Beginning;
use crate::ring::Partitioner;
use crate::storage::Storage;
use crate::storage::own_place::SavedPlace;
use crate::storage::system::{self, Identity, IdentityError};

/// Establishes who the node is, and as what it starts. The token of a first start is `InitialToken`
/// or a random one, unless `AutoBootstrap` has it join first; later the saved one counts.
pub(super) fn begin(
    settings: &Settings,
    options: &NodeOptions,
    storage: &Storage,
    clock: &dyn Clock,
) -> Result<(Identity, Beginning), NodeError> {
    let partitioner: Partitioner = settings.partitioner;
    let configured = settings.initial_token.as_deref();
    let configured = configured.and_then(|text| partitioner.parse_token(text).ok());
    let replace = options.properties.replace_token();
    let is_seed = settings.seeds.contains(&settings.network.listen_address);
    let joins = replace.is_some() || settings.auto_bootstrap && !is_seed;
    let first_token = || {
        let random = || partitioner.random_token(&mut fastrand::Rng::with_seed(options.seed));
        (!joins).then(|| configured.clone().unwrap_or_else(random))
    };
    let place = SavedPlace::read(storage).map_err(IdentityError::from)?;
    if place == SavedPlace::Left {
        return Err(NodeError::Decommissioned);
    }
    let (cluster, now) = (&settings.cluster_name, clock.now_secs());
    let identity = system::establish_identity(storage, cluster, now, first_token)?;
    if let Some(token) = &identity.token {
        let token = partitioner.display_token(token);
        if identity.is_new {
            log::info!("Saved Token not found. Using {token}");
            if settings.auto_bootstrap {
                log::info!(
                    "This node will not auto bootstrap because it is configured to be a seed node."
                );
            }
        } else {
            log::info!("Saved Token found: {token}");
        }
        return Ok((identity, Beginning::Member));
    }
    let resumed = match (&place, &identity.former) {
        (SavedPlace::Arriving { token, replaced }, _) => {
            Some(Beginning::Arrive(token.clone(), *replaced))
        }
        (SavedPlace::Departing, Some(token)) => Some(Beginning::Depart(token.clone())),
        _ => None,
    };
    if let Some(beginning) = resumed {
        return Ok((identity, beginning));
    }
    if let Some(text) = replace {
        let token = partitioner.parse_token(text);
        let token =
            token.map_err(|source| NodeError::ReplaceToken { token: text.to_owned(), source })?;
        if place == SavedPlace::Joining(Some(token.clone())) {
            // The last start found nobody there any more.
            return Ok((identity, Beginning::Arrive(token, None)));
        }
        return Ok((identity, Beginning::Replace(token)));
    }
    let token = match place {
        SavedPlace::Joining(Some(token)) => Some(token),
        // It was about to go to where the most is to be done.
        SavedPlace::Joining(None) if identity.former.is_some() => None,
        _ => configured,
    };
    let former = identity.former.clone();
    Ok((identity, Beginning::Join { token, former }))
}
