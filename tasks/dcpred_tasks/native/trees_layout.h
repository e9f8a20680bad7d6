// Written by `python -m dcpred_tasks.native` from the named tuples of Python: change those.
#pragma once
#include "vectors.h"

constexpr int64_t LANES = 16;
constexpr int64_t NEVER = 255;
constexpr int64_t MOST_DEPTH = 8;
constexpr int64_t STRIP_ROWS = 64;
constexpr int64_t BLOCK_TREES = 32;
constexpr int64_t FEWEST_LEAVES = 64;
constexpr int64_t LARGEST_SUM = 32767;

struct Growth {
    int64_t n_features;
    int64_t n_outputs;
    int64_t depth;
    int64_t n_bins;
    double ridge;
    Array<uint8_t> bins;
    Array<int32_t> gradient;
    Array<int64_t> columns;
};

struct GrowthRoom {
    Array<int32_t> rows;
    Array<int32_t> back;
    Array<int64_t> histograms;
    Array<double> gains;
    Array<double> below;
    Array<int32_t> feature;
    Array<uint8_t> bin;
    Array<uint8_t> leaf;
};

struct GrowthArguments {
    Growth growth;
    GrowthRoom room;
};

struct Forest {
    int64_t n_features;
    int64_t n_outputs;
    int64_t depth;
    int64_t n_leaves;
    Array<int64_t> used;
    Array<int64_t> levels;
    Array<int64_t> border_at;
    Array<float> borders;
    Array<int64_t> slots;
    Array<uint8_t> bins;
    Array<int64_t> block_at;
    Array<int16_t> values;
    Array<double> scale;
    Array<double> bias;
};

struct Strip {
    Array<uint8_t> bins;
    Array<uint8_t> leaves;
    Array<int32_t> totals;
};

struct Source {
    int64_t code;
    int64_t itemsize;
    int64_t address;
    int64_t stride;
};

struct Arguments {
    Forest forest;
    Strip strip;
    Source source;
    int64_t n;
    Array<double> out;
};
