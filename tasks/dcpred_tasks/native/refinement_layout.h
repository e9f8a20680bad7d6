// Written by `python -m dcpred_tasks.native` from the named tuples of Python: change those.
#pragma once
#include "vectors.h"

constexpr int64_t MOST_KNOTS = 63;
constexpr int64_t VERSION = 1;
constexpr int64_t LANES = 16;
constexpr int64_t SLAB = 256;
constexpr int64_t STRIP_ROWS = 64;
constexpr double UNIT = 5.960464477539063e-08;
constexpr int64_t FEW_FEATURES = 32;
constexpr double SKIP_SHARE = 0.65;
constexpr int64_t SKIP_FEATURES = 24;
constexpr double BORDER_ROWS = 0.02;
constexpr int64_t AT_ONCE = 8;
constexpr int64_t UNROLLED = 4;
constexpr double FIXED_NORM = 32000.0;
constexpr double FIXED_CENTRE_NORM = 65000.0;
constexpr int64_t FIXED_FEATURES = 1048576;
constexpr int64_t STEP = 64;
constexpr int64_t PARTS = 3;
constexpr int64_t PART_SUMS = 4;
constexpr int64_t TILE_FEATURES = 128;
constexpr int64_t TILE_GROUPS = 3;
constexpr int64_t SUMMED_GROUPS = 2;
constexpr double HUGE = 1e+30;
constexpr double ROOT_OF_HUGE = 1000000000000000.0;
constexpr int64_t NOWHERE = 4294967295;
constexpr int64_t MEMORY = 10;
constexpr double FIRST_STEP = 0.1;
constexpr double DECREASE = 0.0001;
constexpr double SHORTER = 0.3;
constexpr int64_t TRIES = 20;
constexpr double CURVED = 1e-10;
constexpr double NEARNESS = 1.0;
constexpr double MEAN_DECAY = 0.9;
constexpr double SQUARE_DECAY = 0.99;
constexpr double TINY = 1e-12;
constexpr double SLOPE_DECAY = 0.9;
constexpr double SQUARE_LEFT = 0.95;
constexpr int64_t MOST_NEAR = 32;

struct Calibrating {
    int64_t n_outputs;
    int64_t n_classes;
    Array<double> decision;
    Array<double> target;
    Array<double> weight;
    Array<double> prior;
    Array<double> factors;
    Array<double> knot;
    Array<double> slope;
    Array<double> numbers;
    Array<double> moved;
    Array<double> q;
    Array<double> right;
    Array<double> total;
    Array<double> by_slope;
    Array<double> by_share;
    Array<double> by_moved;
};

struct CalibratingArguments {
    Calibrating calibrating;
};

struct Clustering {
    int64_t n_features;
    int64_t width;
    int64_t k;
    int64_t trials;
    int64_t steps;
    double tolerance;
    Array<float> rows;
    Array<double> weight;
    Array<double> draws;
    Array<int64_t> first;
    Array<float> strips;
    Array<double> middle;
    Array<float> factors;
    Array<int32_t> label;
    Array<float> closest;
    Array<float> distance;
    Array<double> sums;
    Array<double> totals;
    Array<double> centres;
};

struct ClusteringArguments {
    Clustering clustering;
};

struct Problem {
    int64_t n_strips;
    int64_t tile_strips;
    int64_t n_features;
    int64_t width;
    int64_t columns;
    int64_t n_landmarks;
    int64_t padded;
    int64_t n_pairs;
    int64_t terms;
    int64_t k_stride;
    int64_t n_outputs;
    int64_t f_stride;
    int64_t n_unknowns;
    int64_t beta_at;
    int64_t intercept_at;
    int64_t gamma_at;
    int64_t factor_at;
    int64_t kernel;
    int64_t own_factors;
    int64_t steps;
    int64_t n_batches;
    double tolerance;
    double scale;
    double share;
    double nearness;
    double machine_gamma;
    int64_t loss;
    double log_gamma;
    double log_factor;
    Array<float> x;
    Array<double> shape;
    Array<double> loss_numbers;
    Array<float> weight;
    Array<float> goals;
    Array<float> offset;
    Array<double> middle;
    Array<float> points;
    Array<float> point_weights;
    Array<double> gamma;
    Array<int64_t> left;
    Array<int64_t> right;
    Array<double> stiff;
    Array<double> rest_point;
    Array<double> rates;
};

struct Room {
    Array<float> factors;
    Array<float> beta;
    Array<float> intercept;
    Array<float> K;
    Array<float> falls;
    Array<float> f;
    Array<float> powers;
    Array<float> pulled;
    Array<double> gamma;
    Array<double> square;
    Array<float> squares;
    Array<float> coefficients;
    Array<float> by_row;
    Array<double> square_sums;
    Array<double> slopes;
    Array<double> sums;
    Array<double> beta_sums;
    Array<double> x;
    Array<double> gradient;
    Array<double> trial;
    Array<double> at_trial;
    Array<double> direction;
    Array<double> moves;
    Array<double> changes;
    Array<double> inverse;
    Array<double> along;
    Array<double> value;
    Array<double> adam;
    Array<int64_t> order;
    Array<float> batch_x;
    Array<float> batch_weight;
    Array<float> batch_goals;
    Array<float> batch_offset;
};

struct Ridge {
    double ridge;
    double floor;
    int64_t stride;
    Array<float> weight;
    Array<float> target;
    Array<float> sign;
    Array<float> weighted;
    Array<double> sums;
    Array<double> system;
    Array<double> factor;
    Array<double> right;
    Array<float> values;
    Array<double> squares;
};

struct RidgeArguments {
    Problem p;
    Room room;
    Ridge ridge;
};

struct Search {
    int64_t columns;
    int64_t n_features;
    int64_t n_pool;
    int64_t k;
    int64_t room;
    int64_t tile_strips;
    Array<float> given;
    Array<float> source;
    Array<float> root;
    Array<int64_t> used;
    Array<float> rows;
    Array<int64_t> pool_row;
    Array<float> pool;
    Array<int64_t> held;
    Array<float> limit;
    Array<float> distance;
    Array<int32_t> number;
};

struct Learning {
    int64_t classes;
    int64_t rounds;
    int64_t steps;
    int64_t n_anchors;
    int64_t batch;
    double pace;
    double pull;
    double floor;
    Array<int64_t> anchors;
    Array<double> target;
    Array<double> weight;
    Array<double> first;
    Array<double> log_w;
    Array<double> slope;
    Array<double> square;
    Array<double> mean;
    Array<float> squares;
    Array<float> near_weight;
    Array<double> near_target;
    Array<float> sums;
    Search search;
};

struct LearningArguments {
    Learning learning;
};

struct SearchArguments {
    Search search;
};

struct BeginningArguments {
    Problem p;
    Room room;
    Ridge ridge;
    Clustering clustering;
};

struct Predictions {
    int64_t k;
    Array<float> squares;
    Array<float> weight;
    Array<double> target;
    Array<double> widths;
    Array<double> predicted;
};

struct PredictionArguments {
    Predictions predictions;
};

struct Arguments {
    Problem p;
    Room room;
};
