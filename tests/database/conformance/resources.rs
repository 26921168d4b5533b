//! What a database takes: disk when it is empty, log for idle keyspaces, memory under load.

use std::os::unix::fs::MetadataExt;

use turbidite::{Database, EngineKind, Layer, Stats};

use crate::setup::{ENGINES, NAME, Setup, files_below, layers, options};

const MIB: u64 = 1 << 20;

#[test]
fn an_empty_database_takes_less_than_a_mebibyte() {
    let setups = ENGINES.into_iter().flat_map(|engine| {
        layers().into_iter().map(move |layer| Setup::disk(layer).engine(engine))
    });
    for setup in setups {
        let (database, keyspace) = setup.start();
        let measure = |database: Option<&Database>| {
            let files = files_below(&setup.path);
            let blocks = files.keys().map(|path| path.metadata().unwrap().blocks() * 512);
            assert!(blocks.sum::<u64>() < MIB, "{setup}");
            let lengths: u64 = files.values().map(|bytes| bytes.len() as u64).sum();
            assert!(lengths < MIB, "{setup}");
            assert!(database.is_none_or(|database| database.stats().disk_bytes <= lengths));
        };
        measure(Some(&database));
        keyspace.put("k", "v").unwrap();
        measure(Some(&database));
        drop((database, keyspace));
        measure(None);
        for _ in 0..5 {
            drop(setup.start());
            measure(None);
        }
    }
}

#[test]
fn an_idle_keyspace_does_not_pin_the_log() {
    let in_memory = ENGINES.map(|engine| Setup::memory().engine(engine));
    for setup in in_memory.into_iter().chain([Setup::disk(Layer::Mmap)]) {
        let (database, idle) = setup.start();
        idle.put("idle", "small").unwrap();
        let busy = database.keyspace("busy", setup.options.clone()).unwrap();
        let mut most = 0;
        for number in 0..100_000_u64 {
            busy.put(number.to_le_bytes(), [number as u8; 600]).unwrap();
            if number % 500 == 0 {
                most = most.max(database.stats().log.bytes);
            }
        }
        database.settle().unwrap();
        assert!(most < 48 * MIB, "{setup}: {most} bytes of log");
        assert!(idle.stats().flushes > 0, "{setup}: the idle keyspace was asked to persist");
        drop((idle, busy));
        database.close().unwrap();
        let database = setup.open();
        assert_eq!(database.open_keyspace(NAME).unwrap().get("idle").unwrap().unwrap(), "small");
        assert_eq!(database.open_keyspace("busy").unwrap().count().unwrap(), 100_000);
    }
}

#[test]
fn many_idle_keyspaces_do_not_pin_the_log() {
    const MANY: usize = 300;
    for engine in ENGINES {
        let setup = Setup::memory().engine(engine);
        let database = setup.builder().memory_budget(64 * MIB as usize).open().unwrap();
        let open = |name: &str| database.keyspace(name, setup.options.clone()).unwrap();
        let (idle, busy): (Vec<_>, _) =
            ((0..MANY).map(|number| open(&format!("idle {number}"))).collect(), open("busy"));
        // Each has its write in another segment, and batches are large: the housekeeper is not called often.
        let mut most = 0;
        for number in 0..600_u32 {
            if let Some(idle) = idle.get(number as usize) {
                idle.put("idle", "small").unwrap();
            }
            let mut batch = database.batch();
            for part in 0..2 {
                batch.put(&busy, (2 * number % 50 + part).to_le_bytes(), vec![7; 500_000]);
            }
            batch.commit().unwrap();
            if number % 50 == 0 {
                database.settle().unwrap();
            }
            most = most.max(database.stats().log.bytes);
        }
        assert!(most < 100 * MIB, "{setup}: {most} bytes of log");
    }
}

fn memory_taken(stats: &Stats) -> u64 {
    let memory = stats.memory;
    memory.memtables + memory.block_cache + memory.tables + memory.indexes
}

#[test]
fn memory_stays_within_the_budget() {
    const BUDGET: u64 = 16 * MIB;
    let setup = Setup::disk(Layer::Positional);
    let database = setup.builder().memory_budget(BUDGET as usize).open().unwrap();
    let keyspaces = ENGINES.map(|engine| {
        let options = options(engine).log(engine != EngineKind::Btree);
        database.keyspace(&engine.to_string(), options).unwrap()
    });
    let value = vec![5; 1000];
    let records = 160 * MIB / 1000;
    let mut parts = [0; 4];
    for number in 0..records {
        let keyspace = &keyspaces[number as usize % ENGINES.len()];
        let key = (number.wrapping_mul(0x9e37_79b9_7f4a_7c15)).to_be_bytes();
        keyspace.put(key, &value).unwrap();
        if number % 16 == 0 {
            keyspace.get((number / 2).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes()).unwrap();
        }
        if number % 1000 == 0 {
            let stats = database.stats();
            assert!(memory_taken(&stats) <= BUDGET, "at {number}: {:?}", stats.memory);
            let memory = stats.memory;
            let now = [memory.memtables, memory.block_cache, memory.tables, memory.indexes];
            parts = std::array::from_fn(|part| parts[part].max(now[part]));
        }
    }
    database.settle().unwrap();
    assert_eq!(database.stats().memory.budget, BUDGET);
    assert!(parts.iter().all(|&most| most > 0), "all parts were in use: {parts:?}");
    let counts: u64 = keyspaces.iter().map(|keyspace| keyspace.count().unwrap()).sum();
    assert_eq!(counts, records);
    assert!(memory_taken(&database.stats()) <= BUDGET);
    assert!(keyspaces[0].stats().compactions > 0 && keyspaces[1].stats().flushes > 0);
}
