//! Committing a clear: all that was written to a keyspace before is gone, as by one write.
//!
//! It has a number like any other, and in the log an entry under it without anything else. So it costs the same whatever
//! there is, takes effect for all at once, and is there after a crash if what was written before it is.

use super::{Committer, Target, entry};
use crate::contract::Clear;
use crate::error::Result;
use crate::options::Durability;

impl Committer {
    /// Empties `target`, which `engine` is the engine of, as the next write, and returns when the durability is reached.
    /// After an error it is as it was, unless it is unknown whether the log has it, and all writes are refused.
    pub(crate) fn commit_clear(
        &self,
        target: &Target,
        engine: &dyn Clear,
        durability: Durability,
    ) -> Result<()> {
        let durability = target.logged.then_some(durability);
        let seqno = {
            let mut pen = self.pen()?;
            self.check()?;
            let pen = &mut *pen;
            let before = pen.cut_at(target);
            let (seqno, _) = pen.next(1)?;
            if target.logged {
                let writer = pen.writer.as_mut().expect("a database that takes writes has a log");
                pen.head.clear();
                entry::put_clear(&mut pen.head, target.id);
                let appended = writer.append(seqno, 1, &[&pen.head]);
                appended.map_err(|error| self.failed_append(error))?;
            }
            pen.last = seqno;
            self.write_group(pen, durability)?;
            engine.clear(before, seqno);
            self.visibility.publish(seqno);
            self.keep_house(pen);
            seqno
        };
        if durability == Some(Durability::Sync) { self.sync(seqno) } else { Ok(()) }
    }
}
