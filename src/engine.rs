//! Making engines: the one place that matches on the kind.

use std::sync::Arc;

use crate::btree;
use crate::contract::{Context, Engine};
use crate::error::Result;
use crate::hash::Store;
use crate::lsm::Tree;
use crate::options::{EngineKind, KeyspaceOptions};
use crate::skip;

/// Makes the files of a new, empty engine in its directory.
pub(crate) fn create(options: &KeyspaceOptions, context: Context) -> Result<Arc<dyn Engine>> {
    match options.engine {
        EngineKind::Btree => Ok(btree::Store::create(context, options.tree)?),
        EngineKind::Lsm => Ok(Tree::create(context, options.lsm.clone())?),
        EngineKind::Hash => Ok(Store::create(context)?),
        EngineKind::Skip => Ok(skip::Store::create(context, options.skip.clone())?),
    }
}

/// Opens an engine where it has persisted. Changes nothing on disk.
pub(crate) fn open(options: &KeyspaceOptions, context: Context) -> Result<Arc<dyn Engine>> {
    match options.engine {
        EngineKind::Btree => Ok(btree::Store::open(context, options.tree)?),
        EngineKind::Lsm => Ok(Tree::open(context, options.lsm.clone())?),
        EngineKind::Hash => Ok(Store::open(context)?),
        EngineKind::Skip => Ok(skip::Store::open(context, options.skip.clone())?),
    }
}

#[cfg(test)]
mod tests;
