// An index of sdsl-lite as an engine: see engine.rs for the protocol. A program of its own, because sdsl-lite's
// licence (GPL-3.0 or later) is not that of the project, and compiled for one index, because sdsl-lite's
// sampling rates are template parameters: -DINDEX=…
//
//     sdsl FOLDER CACHE    with FOLDER/{text,extracts,patterns}; suffix array and BWT are kept in CACHE

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iostream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <vector>
#include <unistd.h>
#include <sdsl/suffix_arrays.hpp>

using Index = INDEX;

// Checksums as in checksum.rs.
static const uint64_t MIX = 0x9e3779b97f4a7c15ull;

static uint64_t fold(uint64_t sum, uint64_t value) {
    return (((sum << 5) | (sum >> 59)) ^ value) * MIX;
}

static uint64_t of_bytes(const uint8_t* bytes, size_t len) {
    uint64_t sum = fold(0, len);
    for (size_t at = 0; at < len; at += 8) {
        uint64_t word = 0;
        std::memcpy(&word, bytes + at, std::min<size_t>(8, len - at));
        sum = fold(sum, word);
    }
    return sum;
}

template <class Offsets> static uint64_t of_offsets(const Offsets& offsets) {
    uint64_t sum = 0;
    for (uint64_t offset : offsets) {
        uint64_t mixed = (offset + 1) * MIX;
        sum += (mixed ^ (mixed >> 32)) * MIX;
    }
    return fold(sum, offsets.size());
}

static std::vector<uint8_t> read_all(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    if (!file) throw std::runtime_error("cannot read " + path);
    return std::vector<uint8_t>(std::istreambuf_iterator<char>(file), {});
}

static uint32_t word_at(const std::vector<uint8_t>& bytes, size_t at) {
    if (at + 4 > bytes.size()) throw std::runtime_error("a file of queries is cut off");
    return bytes[at] | bytes[at + 1] << 8 | bytes[at + 2] << 16 | uint32_t(bytes[at + 3]) << 24;
}

struct Queries {
    std::vector<uint32_t> extracts;
    std::vector<std::vector<uint8_t>> patterns;

    explicit Queries(const std::string& folder) {
        auto bytes = read_all(folder + "/extracts");
        for (size_t at = 0; at < bytes.size(); at += 4) extracts.push_back(word_at(bytes, at));
        bytes = read_all(folder + "/patterns");
        for (size_t at = 0; at < bytes.size();) {
            size_t len = word_at(bytes, at);
            at += 4;
            if (at + len > bytes.size()) throw std::runtime_error("a file of queries is cut off");
            patterns.emplace_back(bytes.begin() + at, bytes.begin() + at + len);
            at += len;
        }
        if (extracts.empty() || patterns.empty()) throw std::runtime_error("there are no queries");
    }
};

// The checksum of the answers to `count` queries from the first on.
static uint64_t answer(const Index& index, const Queries& queries, const std::string& query, size_t first,
                       size_t count) {
    uint64_t sum = 0;
    if (query == "extract-64" || query == "extract-1024") {
        const size_t len = query == "extract-64" ? 64 : 1024;
        std::vector<uint8_t> bytes(len);
        for (size_t i = first; i < first + count; ++i) {
            size_t offset = queries.extracts[i % queries.extracts.size()];
            sdsl::extract(index, offset, offset + len - 1, bytes.data());
            sum = fold(sum, of_bytes(bytes.data(), len));
        }
    } else if (query == "count") {
        for (size_t i = first; i < first + count; ++i) {
            const auto& pattern = queries.patterns[i % queries.patterns.size()];
            sum = fold(sum, sdsl::count(index, pattern.begin(), pattern.end()));
        }
    } else if (query == "search") {
        for (size_t i = first; i < first + count; ++i) {
            const auto& pattern = queries.patterns[i % queries.patterns.size()];
            sum = fold(sum, of_offsets(sdsl::locate(index, pattern.begin(), pattern.end())));
        }
    } else {
        throw std::runtime_error("no such query: " + query);
    }
    return sum;
}

int main(int argc, char** argv) try {
    if (argc != 3) throw std::runtime_error("usage: sdsl FOLDER CACHE");
    const std::string folder = argv[1], cache = argv[2];
    Index index;
    {
        sdsl::cache_config config(false, cache, "text");
        // Ψ is written before it is encoded, and no other process may write the same file.
        const std::string psi = cache + "/psi_" + std::to_string(getpid()) + ".sdsl";
        config.file_map[sdsl::conf::KEY_PSI] = psi;
        sdsl::construct(index, folder + "/text", config, 1);
        std::remove(psi.c_str());
    }
    const Queries queries(folder);
    std::cout << sdsl::size_in_bytes(index) << std::endl;
    std::string query;
    size_t batch, first, count;
    while (std::cin >> query >> batch >> first >> count) {
        const auto start = std::chrono::steady_clock::now();
        const uint64_t sum = answer(index, queries, query, first, count);
        const auto time = std::chrono::steady_clock::now() - start;
        std::cout << std::chrono::duration_cast<std::chrono::nanoseconds>(time).count() << ' ' << sum
                  << std::endl;
    }
    return 0;
} catch (const std::exception& error) {
    std::cerr << "sdsl: " << error.what() << std::endl;
    return 1;
}
