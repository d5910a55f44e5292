//! Summaries, intervals, paired ratios, series tests, knees and histograms over plain numbers.
