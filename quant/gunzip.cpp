// quant/gunzip.cpp: see gunzip.h. Source: RFC 1951 (DEFLATE), RFC 1952 (gzip).
#include "gunzip.h"

#include <algorithm>
#include <cstring>

namespace duet {
namespace {

struct unpacker {
    const uint8_t *at, *end;
    std::vector<uint8_t>& out;
    uint32_t hold = 0;
    int n_held = 0;
    bool ok = true;

    int bits(int n) {
        while (n_held < n) {
            if (at == end) {
                ok = false;
                return 0;
            }
            hold |= (uint32_t)*at++ << n_held;
            n_held += 8;
        }
        const int v = (int)(hold & ((1u << n) - 1));
        hold >>= n;
        n_held -= n;
        return v;
    }

    // A canonical Huffman code: the symbols in order of length and value.
    struct code_table {
        int count[16] = {};
        uint16_t symbol[288] = {};
        void make(const uint8_t* length, int n) {
            int first[16] = {};
            for (int i = 0; i < n; i++) count[length[i]]++;
            count[0] = 0;
            for (int k = 1; k < 15; k++) first[k + 1] = first[k] + count[k];
            for (int i = 0; i < n; i++)
                if (length[i]) symbol[first[length[i]]++] = (uint16_t)i;
        }
    };
    int next(const code_table& t) {
        for (int k = 1, code = 0, first = 0, index = 0; k < 16 && ok; k++) {
            code |= bits(1);
            if (code - first < t.count[k]) return t.symbol[index + code - first];
            index += t.count[k];
            first = (first + t.count[k]) << 1;
            code <<= 1;
        }
        ok = false;
        return 0;
    }

    // Each of these unpacks a part of the format: a stored block, the code tables of a block, a compressed block.
    void stored() {
        hold = 0;
        n_held = 0;
        const int n = bits(16), inverse = bits(16);
        ok = ok && n == (inverse ^ 0xffff) && end - at >= n;
        if (!ok) return;
        out.insert(out.end(), at, at + n);
        at += n;
    }
    void lengths(code_table* literals, code_table* distances) {
        uint8_t length[320] = {};
        const int n_literals = bits(5) + 257, n_distances = bits(5) + 1, n_lengths = bits(4) + 4;
        constexpr uint8_t kOrder[19] = {16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15};
        for (int i = 0; i < n_lengths; i++) length[kOrder[i]] = (uint8_t)bits(3);
        code_table t;
        t.make(length, 19);
        for (int i = 0; i < n_literals + n_distances && ok;) {
            const int s = next(t);
            // A symbol below 16 is a length; 16 repeats the last length, 17 and 18 repeat zero.
            const uint8_t value = s < 16 ? (uint8_t)s : s == 16 && i > 0 ? length[i - 1] : 0;
            int n = s < 16 ? 1 : s == 18 ? 11 + bits(7) : 3 + bits(s - 14);
            for (; n > 0 && i < n_literals + n_distances; n--) length[i++] = value;
        }
        literals->make(length, std::min(n_literals, 288));
        distances->make(length + n_literals, n_distances);
    }
    void block(const code_table& literals, const code_table& distances) {
        for (int s; ok && (s = next(literals)) != 256;) {
            if (s < 256) {
                out.push_back((uint8_t)s);
                continue;
            }
            const int a = s - 257, n_extra = a < 8 || a == 28 ? 0 : (a - 4) / 4;
            int n = a < 8 ? a + 3 : a == 28 ? 258 : ((4 + a % 4) << n_extra) + 3 + bits(n_extra);
            const int b = next(distances), far = b < 4 ? 0 : (b - 2) / 2;
            const size_t back = b < 4 ? (size_t)b + 1 : (size_t)(((2 + b % 2) << far) + 1 + bits(far));
            ok = ok && a <= 28 && b <= 29 && back <= out.size();
            if (!ok) return;
            for (; n > 0; n--) out.push_back(out[out.size() - back]);
        }
    }
    bool run() {
        bool is_last = false;
        while (ok && !is_last) {
            is_last = bits(1) != 0;
            const int kind = bits(2);
            code_table literals, distances;
            if (kind == 0) {
                stored();
                continue;
            }
            if (kind == 1) {
                uint8_t length[288];
                for (int i = 0; i < 288; i++) length[i] = i < 144 ? 8 : i < 256 ? 9 : i < 280 ? 7 : 8;
                literals.make(length, 288);
                std::fill(length, length + 30, (uint8_t)5);
                distances.make(length, 30);
            } else {
                lengths(&literals, &distances);
            }
            ok = ok && kind != 3;
            block(literals, distances);
        }
        return ok;
    }
};

}  // namespace

bool gunzip(std::span<const uint8_t> packed, std::vector<uint8_t>* out) {
    out->clear();
    const uint8_t *data = packed.data(), *end = data + packed.size();
    if (packed.size() < 18 || data[0] != 0x1f || data[1] != 0x8b) {
        out->assign(data, end);
        return true;
    }
    uint32_t n_bytes = 0, want = 0, sum = ~0u;
    memcpy(&want, end - 8, 4);
    memcpy(&n_bytes, end - 4, 4);
    out->reserve((size_t)n_bytes + 1);
    unpacker u{data + 10, end - 8, *out};
    if (data[3] != 0 || !u.run() || out->size() != n_bytes) return false;
    for (uint8_t byte : *out) {
        sum ^= byte;
        for (int k = 0; k < 8; k++) sum = sum >> 1 ^ (sum & 1 ? 0xedb88320u : 0);
    }
    return ~sum == want;
}

}  // namespace duet
