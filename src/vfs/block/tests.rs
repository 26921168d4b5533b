//! Blocks over a file that fails, is cut short, or is written by several threads. What is common to all layers
//! is tested beside them.

use std::sync::Arc;
use std::thread;

use super::*;
use crate::vfs::{Effect, Errno, Fault, FaultFs, Fs, Layer, MemoryFs, Operation};

const BLOCK: u32 = 512;

struct Blocks {
    memory: MemoryFs,
    faults: FaultFs,
    file: BlockFile,
}

const RAW: [Layer; 2] = [Layer::Positional, Layer::Direct { block_size: BLOCK }];

fn blocks(raw: Layer) -> Blocks {
    let memory = MemoryFs::new();
    let faults = FaultFs::new(Arc::new(memory.clone()));
    let file = BlockFile::new(faults.create(Path::new("a"), raw).unwrap(), BLOCK).unwrap();
    Blocks { memory, faults, file }
}

impl Blocks {
    fn below(&self) -> Vec<u8> {
        self.memory.files().remove(0).1
    }

    fn content(&self) -> Vec<u8> {
        self.file.view(0..self.file.len().unwrap()).unwrap().to_vec()
    }
}

#[test]
fn blocks_that_need_not_be_read_are_not() {
    for raw in RAW {
        let blocks = blocks(raw);
        let reads = || blocks.faults.calls(Operation::Read);
        blocks.file.write_at(0, &[1; 2048]).unwrap();
        blocks.file.write_at(512, &[2; 1024]).unwrap();
        blocks.file.write_at(2048, &[3; 100]).unwrap();
        blocks.file.write_at(5000, &[4; 10]).unwrap();
        assert_eq!(reads(), 0, "whole blocks, and blocks behind the end");
        blocks.file.write_at(100, &[5; 10]).unwrap();
        assert_eq!(reads(), 1, "one block");
        blocks.file.write_at(500, &[6; 1000]).unwrap();
        assert_eq!(reads(), 3, "both edges");
        blocks.file.write_at(2100, &[7; 100]).unwrap();
        blocks.file.view(10..2000).unwrap();
        assert_eq!(reads(), 5);
        assert_eq!(blocks.faults.calls(Operation::Write), 7);
        let mut expected = vec![0; 5010];
        expected[..2048].fill(1);
        expected[512..1536].fill(2);
        expected[2048..2148].fill(3);
        expected[5000..].fill(4);
        expected[100..110].fill(5);
        expected[500..1500].fill(6);
        expected[2100..2200].fill(7);
        assert_eq!(blocks.content(), expected);
    }
}

#[test]
fn the_true_length_is_restored() {
    for restore in [File::flush, File::sync] {
        let blocks = blocks(RAW[1]);
        blocks.file.write_at(0, b"abc").unwrap();
        assert_eq!((blocks.file.len().unwrap(), blocks.below().len()), (3, 512));
        restore(&blocks.file).unwrap();
        assert_eq!(blocks.below(), b"abc");
        blocks.file.write_at(3, b"def").unwrap();
        blocks.file.truncate(4).unwrap();
        assert_eq!(blocks.below(), b"abcd");
        blocks.file.write_at(600, b"g").unwrap();
        let Blocks { memory, file, .. } = blocks;
        drop(file);
        let below = memory.files().remove(0).1;
        assert_eq!((below.len(), &below[..6]), (601, &b"abcd\0\0"[..]));
    }
    let plain = blocks(RAW[0]);
    plain.file.write_at(1, b"bc").unwrap();
    plain.file.write_at(0, b"a").unwrap();
    assert_eq!(plain.below(), b"abc", "a plain file is never padded");
}

/// What a failed write left behind the end must not show when the file grows over it.
#[test]
fn a_failed_write_leaves_the_end_where_it_was() {
    for raw in RAW {
        let blocks = blocks(raw);
        blocks.file.write_at(0, &[1; 700]).unwrap();
        let error = Effect::FailDone(Errno::Raw(5));
        blocks.faults.arm(Fault::new(Operation::Write, error));
        blocks.file.write_at(700, &[9; 2000]).unwrap_err();
        assert_eq!(blocks.file.len().unwrap(), 700);
        assert_eq!(blocks.content(), [1; 700]);
        blocks.file.write_at(3000, &[2; 1]).unwrap();
        let mut expected = vec![1; 700];
        expected.resize(3000, 0);
        expected.push(2);
        assert_eq!(blocks.content(), expected);
        blocks.faults.arm(Fault::new(Operation::Write, error));
        blocks.file.write_at(3001, &[9; 2]).unwrap_err();
        blocks.file.sync().unwrap();
        assert_eq!(blocks.below(), expected);
        blocks.faults.arm(Fault::new(Operation::Read, error));
        blocks.file.write_at(10, &[9; 2]).unwrap_err();
        assert_eq!(blocks.content(), expected);
    }
}

#[test]
fn an_end_that_cannot_be_restored_is_an_error() {
    let blocks = blocks(RAW[1]);
    blocks.file.write_at(0, b"abc").unwrap();
    blocks.faults.arm(Fault::new(Operation::Truncate, Effect::Fail(Errno::Raw(5))));
    blocks.file.sync().unwrap_err();
    assert_eq!(blocks.faults.calls(Operation::Sync), 0);
    assert_eq!(blocks.content(), b"abc");
    blocks.file.sync().unwrap();
    assert_eq!(blocks.below(), b"abc");
}

#[test]
fn what_others_appended_before_is_seen() {
    for raw in RAW {
        let blocks = blocks(raw);
        let path = Path::new("a");
        let other = blocks.memory.open(path, crate::vfs::Access::Write, RAW[0]).unwrap();
        other.write_at(0, &[8; 1000]).unwrap();
        assert_eq!(*blocks.file.view(0..1000).unwrap(), [8; 1000]);
        assert!(blocks.file.view(0..1001).is_err());
    }
}

#[test]
fn writers_of_one_block_lose_nothing() {
    for raw in RAW {
        let blocks = blocks(raw);
        thread::scope(|scope| {
            for writer in 0..4_u8 {
                let file = &blocks.file;
                scope.spawn(move || {
                    for at in (u64::from(writer)..4096).step_by(4) {
                        file.write_at(at, &[writer + 1]).unwrap();
                    }
                });
            }
        });
        let expected: Vec<u8> = (0..4096_u32).map(|at| (at % 4) as u8 + 1).collect();
        assert_eq!(blocks.content(), expected);
    }
}

#[test]
fn long_transfers_go_in_pieces() {
    for raw in RAW {
        let blocks = blocks(raw);
        let bytes: Vec<u8> = (0..3_000_000_u32).map(|at| (at / 7) as u8).collect();
        let (front, back) = bytes.split_at(1_700_001);
        blocks.file.write_vectored_at(333, &[IoSlice::new(front), IoSlice::new(back)]).unwrap();
        let mut read = vec![0; bytes.len()];
        blocks.file.read_at(333, &mut read).unwrap();
        assert!(read == bytes);
        assert!(*blocks.file.view(333..333 + bytes.len() as u64).unwrap() == bytes);
    }
}
