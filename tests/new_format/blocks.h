// Inserted into quant/blocks.h by tests/new_format.sh: blocks as a newcomer would add them, with what every block type
// has to state and no more.
struct block_made_8 {  // 32 weights of 8 bits, in a member of the usual name
    static constexpr int kElems = 32, kSubScales = 1;
    static constexpr bool kHasMin = false;
    uint16_t d;
    int8_t qs[32];
    DUET_HD int code(int i) const { return qs[i]; }
    DUET_HD block_scale scale(int) const { return {half_to_float(d), 0.0f, 1, 0}; }
};

struct block_made_4 {  // other names and another order: neighbours share a byte, and the scales come last
    static constexpr int kElems = 32, kSubScales = 1;
    static constexpr bool kHasMin = true;
    uint8_t pairs[16];
    uint16_t step, low;  // value = step * code + low
    DUET_HD int code(int i) const { return pairs[i / 2] >> i % 2 * 4 & 15; }
    DUET_HD block_scale scale(int) const { return {half_to_float(step), -half_to_float(low), 1, 1}; }
};

struct block_made_K {  // 256 weights of 8 bits, with a sub-scale for each 32
    static constexpr int kElems = 256, kSubScales = 1;
    static constexpr bool kHasMin = false;
    int8_t weight[256];
    uint8_t part[8];
    uint16_t step;
    DUET_HD int code(int i) const { return weight[i]; }
    DUET_HD block_scale scale(int k) const { return {half_to_float(step), 0.0f, part[k / 2] & 63, 0}; }
};
