//! What the report says about the cases of this package, and about the tables that verbs of `viaduct bench` write. To add a
//! table: a line in [`TABLES`].

use viaduct_results::report::{CaseInfo, Catalogue, TableInfo};

use crate::{cases, mpi};

/// What makes the tables of the sort.
const DATAMATION: &str = "viaduct bench datamation -o results.jsonl";

/// Every table that a verb of `viaduct bench` writes.
const TABLES: &[TableInfo] = &[
    TableInfo {
        name: "launch",
        title: "Starting programs that do nothing",
        words: "From the call of a launcher until it has ended, for so many ranks of a program that ends at once; all \
            launchers take turns. The paper (Millennium Sort, section 4.3) gives 400 us for a request to an agent.",
        command: "viaduct bench launch --compare hydra,openmpi,parallel,ssh -o results.jsonl",
    },
    TableInfo {
        name: "mpi-bars",
        title: "Our MPI library against others",
        words: "Ratios of medians that were taken round by round in one run, on the same two cores, each beside what is wanted of it: \
            speeds of messages, two ranks that share a core, and the start of 16 ranks.",
        command: "viaduct bench mpi -o results.jsonl",
    },
    TableInfo {
        name: "ftp",
        title: "File transfer by vsftpd and curl",
        words: "Unmodified programs on one host: the file lies in memory, the client writes to the null device, the daemon's sandbox \
            is off; `times TCP` is taken round by round. After table I of the SOVIA paper, whose values were measured \
            between two hosts.",
        command: "viaduct bench ftp -o results.jsonl",
    },
    TableInfo {
        name: "rpc",
        title: "Remote procedure calls on libtirpc",
        words: "A service and a client made by rpcgen, unmodified, on one host: the time of one call that answers with a number, \
            by the length of its argument. `spinning` is kernel TCP with the library's way of waiting. After figure 10 of the \
            SOVIA paper.",
        command: "viaduct bench rpc -o results.jsonl",
    },
    TableInfo {
        name: "apps",
        title: "Servers of today under viaduct run",
        words: "Unmodified servers with the load that their own tools make, both ends on one host: redis-benchmark without \
            pipelining (also with both ends on one core), memcaslap, wrk with connections that stay open, pgbench; then a C program \
            with plain send and recv: messages over one connection, and a connection for each message, also to a peer that is not \
            under Viaduct. All ways take turns; `times TCP`, and times TCP with the library's way of waiting, are taken round by \
            round.",
        command: "viaduct bench apps -o results.jsonl",
    },
    TableInfo {
        name: "datamation",
        title: "A million records from disk to disk, by nodes",
        words: "Seconds from the call of `viaduct sort` to its end, launch included, divided into the \
                paper's phases (figure 8): those of the node that was busy longest, and all other time as overhead; the speed-up is against one node over the same transport, VIA in shared memory or \
                TCP (figure 9). Nodes share this host, so that more of them than cores cannot be faster.",
        command: DATAMATION,
    },
    TableInfo {
        name: "datamation-overhead",
        title: "Overhead of the sort by cause",
        words: "Milliseconds of the slowest node before it reads its first record: the launch, waiting for the others, connections, \
                pools and the sample. The paper gives 480 ms for VIA and 1.2 s for sockets on 16 nodes.",
        command: DATAMATION,
    },
    TableInfo {
        name: "sort-1m",
        title: "A million records: a copy, other programs, skewed keys",
        words: "Whole runs in turn, launch included; all take part in every round, and the table says how many runs each has. Tools that \
                read text get the printable records of the generator, one a line; our outputs are validated by order, count and \
                checksum, those of others by order and count. cp only copies: it is the floor through the page cache.",
        command: "viaduct bench sort-1m -o results.jsonl",
    },
    TableInfo {
        name: "sort-10m",
        title: "Ten million records: a copy, other programs, skewed keys",
        words: "Whole runs in turn, launch included; all take part in every round, and the table says how many runs each has. Tools that \
                read text get the printable records of the generator, one a line; our outputs are validated by order, count and \
                checksum, those of others by order and count. cp only copies: it is the floor through the page cache.",
        command: "viaduct bench sort-10m -o results.jsonl",
    },
    TableInfo {
        name: "sort-memory",
        title: "Ten million records in little memory",
        words: "A gigabyte in two passes within 256 MB, which GNU sort and uutils are told as well; DuckDB has 300 MB. Validated as in \
                the tables before. The peak is that \
                of the resident memory as the kernel has it. The last row is five gigabytes within 512 MB.",
        command: "viaduct bench sort-memory -o results.jsonl",
    },
    TableInfo {
        name: "sort-lines",
        title: "A gigabyte of lines",
        words: "Lines of 5 to 120 bytes in the order of LC_ALL=C, in turn; our outputs are validated by order, count and the sum of \
                their lines' hashes, those of others by order and count.",
        command: "viaduct bench sort-lines -o results.jsonl",
    },
    TableInfo {
        name: "sort-nodes",
        title: "Ten million records on nodes of one host",
        words: "One process with threads against four nodes, which move three quarters of the records to each other. Nodes add a copy of \
                each record and share the cores, so that they are slower on one host. The peak is the sum of all processes; memory that two share counts at both.",
        command: "viaduct bench sort-nodes -o results.jsonl",
    },
    TableInfo {
        name: "sort-windows",
        title: "Registering memory as a whole and in windows",
        words: "Milliseconds until a pool of a gigabyte is registered with a NIC, in one region or in windows (section 5 of the paper), and \
                until each of its pages was written to once.",
        command: "viaduct bench sort-windows -o results.jsonl",
    },
    TableInfo {
        name: "sort-kernels",
        title: "Kernels of the sort",
        words: "On one core. First the sort itself on the million records, as it is and with all pairs in one bucket, where they are \
                sorted by comparison: what the kernel takes a record, and the whole sort from file to file. Then the idea alone on keys \
                in memory, which is not the sort's code: in buckets by the top of the key and then as pairs of key and place; as \
                pairs by comparison; and whole records by comparison.",
        command: DATAMATION,
    },
    TableInfo {
        name: "sort-minute",
        title: "What is sorted in a minute",
        words: "The longest input that went from disk to disk within the limit, launch and proof included.",
        command: "viaduct bench minute -o results.jsonl",
    },
    TableInfo {
        name: "components",
        title: "What the parts of this host can do",
        words: "Memory, disk past the page cache (written until it is on the disk) and edges of River between two NICs of one process, \
                each alone: the best of the rounds and their median (the paper's table 1). The bottleneck is the part whose rate, \
                by how often a record uses it, bounds the sort. Beside them whole runs of the generator and the validator.",
        command: "viaduct bench components -o results.jsonl",
    },
    TableInfo {
        name: "dsm-table2",
        title: "Cashmere: what remote writes save (Table II)",
        words: "Two nodes of one worker on one host, each worker on its own core. `remote writes` is the variant dms, `messages` the variant \
            none: diffs by their length, with finding what has changed and until the home has it; a lock that the other node had last; an empty \
            barrier. The paper's values are of 8 nodes with 32 processors on Memory Channel.",
        command: "viaduct bench dsm -o results.jsonl",
    },
    TableInfo {
        name: "dsm-operations",
        title: "Cashmere: basic operations (section 3.1)",
        words: "Nodes of one worker on one host, two unless a row says more; four share two cores. A page fetch is a load that finds no mapping: \
            the signal, the request, the page and the new mapping. Notices are told until the other nodes have them.",
        command: "viaduct bench dsm -o results.jsonl",
    },
    TableInfo {
        name: "dsm-region",
        title: "Cashmere: the layer of remote writes",
        words: "What stands in the place of Memory Channel, by itself: a word that one node writes until another that spins sees it; a word to all \
            replicas, the writer's own last (loopback); whole pages; and pairs of words of which none was seen in the wrong order.",
        command: "viaduct bench dsm -o results.jsonl",
    },
    TableInfo {
        name: "dsm-wake",
        title: "Cashmere: operations beside a wake-up across cores",
        words: "A futex wake from one core to a sleeper on the other, both ways in turn, in the rounds in which the operations were measured; \
            `wake-ups` is the ratio, round by round.",
        command: "viaduct bench dsm -o results.jsonl",
    },
    TableInfo {
        name: "dsm-bars",
        title: "Cashmere: ratios, beside what is wanted",
        words: "An empty barrier of two nodes against Open MPI's on the same cores; the work of two workers done by eight on two cores; one node \
            of two workers against two threads of one process that run the same program, without the first touches. Ratios are taken \
            round by round; results are compared bit by bit.",
        command: "viaduct bench dsm -o results.jsonl",
    },
];

/// Tables of the sort whose rows are made up of parts: figure 8 of Millennium Sort, and its overhead by cause.
const STACKS: &[(&str, &[&str])] = &[
    ("datamation", &["overhead", "read", "sort", "write"]),
    ("datamation-overhead", &["launch", "barrier", "connect", "memory", "sample"]),
];

/// Words for the report.
pub fn catalogue() -> Catalogue {
    let case = |case: &&cases::Case| CaseInfo {
        name: case.name,
        about: case.about,
        timed: case.timed,
        lower_is_better: case.lower_is_better,
    };
    let of_mpi = |case: &mpi::Case| CaseInfo {
        name: case.name,
        about: case.about,
        timed: case.timed,
        lower_is_better: case.lower_is_better(),
    };
    let cases = cases::ALL.iter().map(case).chain(mpi::CASES.iter().map(of_mpi));
    Catalogue { cases: cases.collect(), tables: TABLES.to_vec(), stacks: STACKS.to_vec() }
}
