//! Takes the place of `lookup` in a build without the feature `inode-tables`.

use crate::held::HeldDir;
use crate::node::Node;
use crate::sweep_order::SweepOrder;
use crate::tables::Tables;
use crate::visit::Visitor;
use crate::worker::Worker;
use ioloom_sys::dir::Record;
use std::sync::Arc;

impl<V: Visitor> Worker<'_, '_, V> {
    /// Never called: the walk was refused.
    pub(crate) fn entry_in_tables(
        &mut self,
        _node: &Arc<Node<V::Dir>>,
        _held: &Arc<HeldDir>,
        _record: &Record<'_>,
    ) -> bool {
        unreachable!("a walk by inode tables is refused in a build without them")
    }

    /// Never called.
    pub(crate) fn look_up(&mut self, tables: &Tables, _plan: &SweepOrder<V::Dir>) {
        match *tables {}
    }
}
