//! Copies the content of one open file to the new one, by the method that its size and the file
//! systems suggest.

use crate::data::{self, Job, TransferError};
use crate::error::{CopyError, Reason};
use crate::facts;
use crate::file_transfer::{FileTransfer, has_holes};
use crate::hash::Hasher;
use crate::mode::Mode;
use crate::options::{Verify, When};
use crate::plan::{self, CopyPlan, Facts, FileFacts, PlanRequest, SMALL_BYTES};
use crate::resume;
use ioloom_failure::Operation;
use ioloom_sys::attr;
use ioloom_sys::buffer::Buffer;
use ioloom_sys::{file, transfer};
use rustix::io::Errno;
use std::io;
use std::sync::Arc;

/// Describes the copied content.
pub(crate) struct Transferred {
    /// Number of bytes read from the source.
    pub(crate) bytes: u64,
    /// The hash, if it was requested and this process saw the bytes.
    pub(crate) hash: Option<String>,
    /// The method; `None` if no content was copied.
    pub(crate) mode: Option<Mode>,
}

impl FileTransfer<'_> {
    /// Copies the entire content.
    pub(crate) fn bytes(&self, buffer: &mut Buffer) -> Result<Transferred, CopyError> {
        let lacks_offsets = |error: &CopyError| {
            error.operation == Operation::Write && error.errno() == Some(Errno::SPIPE)
        };
        // A pipe cannot be read again.
        let may_restart = !self.is_stream() && self.context.pinned_other_than_buffered().is_none();
        match self.by_best_method(buffer) {
            // Files of the kernel without offsets, such as `/proc/self/comm`. Nothing was written: holes, or parts
            // that several threads write, have no place in them.
            Err(error) if may_restart && lacks_offsets(&error) => {
                self.meter().take_back_to(0);
                self.in_order(buffer)
            }
            moved => moved,
        }
    }

    fn by_best_method(&self, buffer: &mut Buffer) -> Result<Transferred, CopyError> {
        let mut hasher = self.hasher();
        let mut bytes = self.source.attr.bytes;
        if self.is_stream() {
            let job = self.job(CopyPlan::buffered("read sequentially to the end"), false);
            return self.stream(&job, buffer, hasher);
        }
        if self.tolerant {
            return self.changing(buffer, hasher);
        }
        let pinned = self.context.pinned_other_than_buffered();
        if let (0, Some(mode)) = (bytes, pinned) {
            self.check_is_empty(mode, buffer)?;
            let options = self.context.options;
            if options.reflink == When::Always && options.mode.is_none() && self.share_blocks()? {
                return Ok(Transferred { bytes, hash: None, mode: Some(Mode::Reflink) });
            }
            return Ok(Transferred { bytes, hash: hasher.map(Hasher::finish), mode: None });
        }
        if bytes > 0 && self.share_blocks()? {
            return Ok(Transferred { bytes, hash: None, mode: Some(Mode::Reflink) });
        }
        let mode = if bytes <= SMALL_BYTES && !self.has_holes() && pinned.is_none() {
            bytes = self.small(buffer, hasher.as_mut())?;
            Mode::Buffered
        } else {
            let mode = self.large(buffer, hasher.as_mut())?;
            if self.understates_its_size()? {
                hasher = hasher.map(|_| Hasher::new(self.context.options.hash));
                bytes = self.longer_than_its_size(buffer, hasher.as_mut())?;
            }
            mode
        };
        Ok(Transferred { bytes, hash: hasher.map(Hasher::finish), mode: Some(mode) })
    }

    /// Copies to a file without offsets, to which holes are written as zeros.
    fn in_order(&self, buffer: &mut Buffer) -> Result<Transferred, CopyError> {
        let job = self.job(CopyPlan::buffered("the target has no offsets"), false);
        let job = Job { holes: false, punch_zeros: false, ..job };
        // Each write is a new value, so a value must not be split.
        if buffer.capacity() < job.plan.buffer_bytes() {
            *buffer = Buffer::new(job.plan.buffer_bytes());
        }
        self.stream(&job, buffer, self.hasher())
    }

    /// Copies sequentially to the end of the source, or to the size that it had when it was opened.
    fn stream(
        &self,
        job: &Job<'_>,
        buffer: &mut Buffer,
        mut hasher: Option<Hasher>,
    ) -> Result<Transferred, CopyError> {
        let most = if self.tolerant { self.source.attr.bytes } else { u64::MAX };
        let ends = (self.source.is_stream(), self.writes_stream);
        let bytes = data::sequential(job, ends, most, buffer, hasher.as_mut())
            .map_err(|error| self.route.transfer_error(error))?;
        Ok(Transferred { bytes, hash: hasher.map(Hasher::finish), mode: Some(Mode::Buffered) })
    }

    /// Copies a source that other programs change, at most up to the size that it had when it was
    /// opened. Shared blocks are its content at one moment.
    fn changing(
        &self,
        buffer: &mut Buffer,
        mut hasher: Option<Hasher>,
    ) -> Result<Transferred, CopyError> {
        let before = self.source.attr.bytes;
        if before > 0 && self.share_blocks()? {
            let shared = attr::of_file(self.new.file())
                .map_err(|e| self.route.failed_to(Operation::Stat, e))?;
            let bytes = shared.bytes.min(before);
            if shared.bytes > bytes {
                transfer::set_len(self.new.file(), bytes)
                    .map_err(|e| self.route.failed_to(Operation::Truncate, e))?;
            }
            self.meter().take_back_to(bytes);
            return Ok(Transferred { bytes, hash: None, mode: Some(Mode::Reflink) });
        }
        let job = self.job(CopyPlan::buffered("the source is changing"), false);
        let bytes = data::changing(&job, buffer, hasher.as_mut())
            .map_err(|error| self.route.transfer_error(error))?;
        Ok(Transferred { bytes, hash: hasher.map(Hasher::finish), mode: Some(Mode::Buffered) })
    }

    fn hasher(&self) -> Option<Hasher> {
        let options = self.context.options;
        (options.verify != Verify::None).then(|| Hasher::new(options.hash))
    }

    fn has_holes(&self) -> bool {
        has_holes(self.context, &self.source.attr)
    }

    /// Copies a small file with one read and one write; returns the number of bytes copied. The
    /// read requests one byte more than the file size, so a full read indicates that the file grew.
    fn small(&self, buffer: &mut Buffer, hasher: Option<&mut Hasher>) -> Result<u64, CopyError> {
        let (route, attr) = (self.route, &self.source.attr);
        if attr.bytes == 0 {
            return self.unsized_source(buffer, hasher);
        }
        let want = attr.bytes as usize + 1;
        let into = &mut buffer.whole_mut()[..want];
        let mut got = file::read_at(&self.source.file, &mut *into, 0)
            .map_err(|e| route.failed_from(Operation::Read, e))?;
        if got < attr.bytes as usize {
            let rest = &mut into[got..];
            got += file::read_full_at(&self.source.file, rest, got as u64)
                .map_err(|e| route.failed_from(Operation::Read, e))?;
        }
        if got < attr.bytes as usize && !self.overstates_its_size()? {
            return Err(route.changed("shrank"));
        }
        if got > attr.bytes as usize && self.understates_its_size()? {
            return self.longer_than_its_size(buffer, hasher);
        }
        // If the file has grown, the second stat reports it.
        got = got.min(attr.bytes as usize);
        let mut rest = buffer.bytes(got);
        if let Some(hasher) = hasher {
            hasher.update(rest);
        }
        if self.is_one_hole(rest) {
            transfer::set_len(self.new.file(), got as u64)
                .map_err(|e| route.failed_to(Operation::Truncate, e))?;
            rest = &[];
        }
        let mut at = 0;
        while !rest.is_empty() {
            let n = transfer::write_next_at(self.new.file(), rest, at)
                .map_err(|e| route.failed_to(Operation::Write, e))?;
            if n == 0 {
                return Err(route.failed_to(Operation::Write, io::ErrorKind::WriteZero.into()));
            }
            rest = &rest[n..];
            at += n as u64;
        }
        self.meter().moved(got as u64);
        Ok(got as u64)
    }

    /// Returns true if a small source consists of a hole, whose ranges it is not worth to look for.
    fn is_one_hole(&self, read: &[u8]) -> bool {
        let may_be = self.context.options.sparse == When::Auto && self.source.attr.blocks_512 == 0;
        may_be && !read.is_empty() && read.iter().all(|byte| *byte == 0)
    }

    /// Returns true if a source with a premature end of file is a kernel file (as in /sys). These
    /// report a size of one page regardless of content: such a file occupies no blocks and has not
    /// changed.
    fn overstates_its_size(&self) -> Result<bool, CopyError> {
        let before = &self.source.attr;
        let now = attr::of_file(&self.source.file)
            .map_err(|e| self.route.failed_from(Operation::Stat, e))?;
        Ok(before.blocks_512 == 0 && before.same_content(&now))
    }

    /// Returns true if a source has content beyond its size and has not changed: some file systems
    /// convert what they return, and report the size before that.
    fn understates_its_size(&self) -> Result<bool, CopyError> {
        let before = &self.source.attr;
        let beyond = file::read_at(&self.source.file, &mut [0], before.bytes);
        if beyond.map_err(|e| self.route.failed_from(Operation::Read, e))? == 0 {
            return Ok(false);
        }
        let now = attr::of_file(&self.source.file)
            .map_err(|e| self.route.failed_from(Operation::Stat, e))?;
        Ok(before.same_content(&now))
    }

    /// Copies such a source again from its start to its end.
    fn longer_than_its_size(
        &self,
        buffer: &mut Buffer,
        hasher: Option<&mut Hasher>,
    ) -> Result<u64, CopyError> {
        if let Some(mode) = self.context.pinned_other_than_buffered() {
            return Err(self.refused(mode, "the source has more content than its size says"));
        }
        transfer::set_len(self.new.file(), 0)
            .map_err(|e| self.route.failed_to(Operation::Truncate, e))?;
        self.meter().take_back_to(0);
        let job = self.job(CopyPlan::buffered("longer than its size: read to the end"), false);
        data::until_eof(&job, buffer, hasher).map_err(|t| self.route.transfer_error(t))
    }

    /// Checks that a source of size zero is really empty. Kernel files report size zero but can
    /// have content, which can be discovered only by reading to the end; `mode` cannot copy those.
    fn check_is_empty(&self, mode: Mode, buffer: &mut Buffer) -> Result<(), CopyError> {
        let job = self.job(CopyPlan::buffered("reported size is zero"), false);
        match data::first_of_unsized(&job, buffer).map_err(|t| self.route.transfer_error(t))? {
            0 => Ok(()),
            _ => Err(self.refused(
                mode,
                "the source reports size zero but has content and must be read to the end",
            )),
        }
    }

    fn refused(&self, mode: Mode, why: &'static str) -> CopyError {
        self.route.refused(mode, why)
    }

    /// Copies a source that reports size zero, such as a kernel file, by reading to the end.
    fn unsized_source(
        &self,
        buffer: &mut Buffer,
        hasher: Option<&mut Hasher>,
    ) -> Result<u64, CopyError> {
        let plan = CopyPlan::buffered("reported size is zero: read to the end");
        let job = self.job(plan, false);
        let failed = |t| self.route.transfer_error(t);
        let got = data::first_of_unsized(&job, buffer).map_err(failed)?;
        if got == 0 {
            return Ok(0);
        }
        // The end of a file that grows can be out of reach. A kernel file has no size.
        let now = attr::of_file(&self.source.file)
            .map_err(|e| self.route.failed_from(Operation::Stat, e))?;
        if now.bytes > 0 {
            return Err(self.route.changed("grew"));
        }
        data::rest_of_unsized(&job, got, buffer, hasher).map_err(failed)
    }

    fn job(&self, plan: CopyPlan, reserve: bool) -> Job<'_> {
        Job {
            ends: data::borrow(&self.source.file, self.new.file()),
            bytes: self.source.attr.bytes,
            holes: self.has_holes(),
            punch_zeros: self.context.options.sparse == When::Always,
            reserve,
            pinned: self.context.options.mode.is_some(),
            plan,
            meter: self.meter(),
        }
    }

    fn large(
        &self,
        buffer: &mut Buffer,
        mut hasher: Option<&mut Hasher>,
    ) -> Result<Mode, CopyError> {
        let facts = self.facts()?;
        let plan = self.plan(&facts, hasher.is_some())?;
        self.check_free_space(&facts)?;
        let job = self.job(plan, facts.reserves);
        if let Some(resume) = self.context.resume.get()
            && resume::in_pieces(self.context, self.route, &self.source.attr)
        {
            return resume::copy_pieces(resume, self, &job, buffer, hasher);
        }
        if buffer.capacity() < plan.buffer_bytes() {
            *buffer = Buffer::new(plan.buffer_bytes());
        }
        let mut mode = plan.mode;
        let moved = match data::transfer(&job, buffer, hasher.as_deref_mut()) {
            Err(TransferError::Unsupported(_)) if self.context.options.mode.is_none() => {
                // The file system claims to support this method, but it fails for this file: start
                // over with the method that always works. The failed attempt may have left the
                // target too long.
                let plan = CopyPlan::fallback();
                mode = plan.mode;
                self.meter().take_back_to(0);
                transfer::set_len(self.new.file(), 0)
                    .map_err(|e| self.route.failed_to(Operation::Truncate, e))?;
                if let Some(hasher) = hasher.as_deref_mut() {
                    *hasher = Hasher::new(self.context.options.hash);
                }
                data::transfer(&self.job(plan, false), buffer, hasher)
            }
            moved => moved,
        };
        moved.map_err(|error| self.route.moving_error(mode, error))?;
        Ok(mode)
    }

    /// Returns the facts about this pair of file systems, gathering them for the first file.
    fn facts(&self) -> Result<Arc<Facts>, CopyError> {
        let target =
            attr::of_file(self.new.file()).map_err(|e| self.route.failed_to(Operation::Stat, e))?;
        self.context
            .facts_of((self.source.attr.device, target.device), || {
                facts::gather(&self.source.file, self.new.file())
            })
            .map_err(|e| self.route.failed_to(Operation::StatFs, e))
    }

    fn plan(&self, facts: &Facts, hashed: bool) -> Result<CopyPlan, CopyError> {
        let bytes = self.source.attr.bytes;
        let big = bytes >= plan::BIG_BYTES;
        let resident = big.then(|| facts::resident_share(&self.source.file, bytes)).flatten();
        let request = PlanRequest {
            mode: self.context.options.mode,
            reflink: self.context.options.reflink,
            durable: self.context.options.durable,
            sees_bytes: hashed || self.context.options.sparse == When::Always,
        };
        let tuning = self.context.options.tuning;
        let planned = plan::plan(facts, FileFacts { bytes, resident }, request);
        planned.map(|plan| plan.tuned(tuning)).map_err(|refused| {
            let (path, _) = (self.route.paths)();
            let reason = Reason::Refused(refused);
            CopyError { operation: Operation::Copy, path, other: None, reason }
        })
    }

    /// Fails if the required method cannot be used, as far as that is known before the copy.
    pub(crate) fn check_method(&self) -> Result<(), CopyError> {
        match self.context.pinned_other_than_buffered() {
            Some(mode) if mode != Mode::Reflink && self.source.attr.bytes > 0 => {
                let is_hashed = self.context.options.verify != Verify::None;
                let facts = self.facts()?;
                self.plan(&facts, is_hashed).map(drop)
            }
            _ => Ok(()),
        }
    }

    /// Checks the free space if the file system cannot reserve it, and if zeros will take space.
    fn check_free_space(&self, facts: &Facts) -> Result<(), CopyError> {
        let needed = self.source.attr.blocks_512.saturating_mul(512);
        let holes = self.context.options.sparse == When::Always;
        if facts.reserves || holes || needed < data::RESERVE_BYTES_MIN {
            return Ok(());
        }
        match attr::file_system(self.new.file()) {
            // Compression can make the copy smaller.
            Ok(system) if !system.one_tree && system.free_bytes < needed => {
                Err(self.route.failed_to(Operation::Allocate, Errno::NOSPC.into()))
            }
            _ => Ok(()),
        }
    }

    /// Shares the blocks of the source if requested and possible.
    fn share_blocks(&self) -> Result<bool, CopyError> {
        let (options, attr) = (&self.context.options, &self.source.attr);
        let must = self.context.pinned_other_than_buffered() == Some(Mode::Reflink);
        let may = options.mode.is_none() && options.reflink == When::Auto;
        // Sharing blocks does not read or write them.
        let not = match (options.verify, options.sparse) {
            (Verify::InFlight | Verify::Cache | Verify::Device, _) => Some(plan::SHARED_NOT_HASHED),
            (_, When::Always) => Some("shared blocks are not read, so zeros cannot be found"),
            (_, When::Never) if attr.blocks_512 * 512 < attr.bytes => {
                Some("a copy that shares blocks also shares the holes of its source")
            }
            _ => None,
        };
        match not {
            Some(why) if must => return Err(self.refused(Mode::Reflink, why)),
            Some(_) => return Ok(false),
            None if !must && !may => return Ok(false),
            None => {}
        }
        let devices = (attr.device, self.route.parent_attr.device);
        if !must && self.context.cannot_share(devices) {
            return Ok(false);
        }
        match transfer::clone_file(&self.source.file, self.new.file()) {
            Ok(()) => {
                self.meter().moved(attr.bytes);
                Ok(true)
            }
            // EINVAL concerns the file, not the file system.
            // As GNU cp reports it.
            Err(e) if options.reflink == When::Always && options.mode.is_none() => {
                let (from, to) = (self.route.paths)();
                Err(CopyError::io(Operation::Clone, to, e).and(from))
            }
            Err(e)
                if must
                    && transfer::is_unsupported(&e)
                    && e.kind() != io::ErrorKind::InvalidInput =>
            {
                Err(self.refused(Mode::Reflink, plan::no_sharing(devices.0 == devices.1)))
            }
            Err(e) if !must && !crate::error::out_of_space(&e) => {
                if transfer::is_unsupported(&e) && e.kind() != io::ErrorKind::InvalidInput {
                    self.context.no_sharing(devices);
                }
                Ok(false)
            }
            Err(e) => {
                let (from, to) = (self.route.paths)();
                Err(CopyError::io(Operation::Clone, to, e).and(from))
            }
        }
    }
}
