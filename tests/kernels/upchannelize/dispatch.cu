/* The host's choice of a kernel, compiled without the device's code. */
#include "tests/kernels/upchannelize/dispatch.h"

#include "kernels/upchannelize/gpu/select.cuh"

template <int LAGS> static bool is_mma_u16(const tensor_variant &v)
{
    constexpr int TILES = u16_tiles(LAGS);
    if (v.anywhere == mma_pfb_u16<LAGS, TILES, false>) return true;
    if constexpr (LAGS < MOST_LAGS)
        return is_mma_u16<LAGS + 1>(v);
    else
        return false;
}

extern "C" const char *pfb_file(unsigned factor, unsigned taps, size_t nspectators, double strength,
                                int on_hopper)
{
    double window[128 * 32], gain[128];
    br_upchannelize_window(window, factor, taps);
    for (unsigned u = 0; u < factor; u++) gain[u] = strength * sqrt(static_cast<double>(factor));
    struct br_upchannelize plan = {};
    plan.U = factor;
    plan.M = taps;
    plan.nspectators = nspectators;
    plan.window = window;
    plan.gain = gain;
    if (!tensor_fits(&plan)) return "fp32/pfb.cuh";
    const tensor_variant v = tensor_variant_for(&plan, on_hopper != 0);
    if (v.kernel == nullptr) return "wgmma/pfb_u16.cuh";
    if (v.mapped == wgmma_pfb_u32_64_mapped<u32_64_shape<32, 4>, false> ||
        v.mapped == wgmma_pfb_u32_64_mapped<u32_64_shape<64, 3>, false>)
        return "wgmma/pfb_u32_64.cuh";
    if (v.mapped == wgmma_pfb_u128_mapped<u128_shape<128, 4>, false>) return "wgmma/pfb_u128.cuh";
    if (v.anywhere == mma_pfb_u32up<32, false> || v.anywhere == mma_pfb_u32up<64, false> ||
        v.anywhere == mma_pfb_u32up<128, false>)
        return "mma/pfb_u32up.cuh";
    return is_mma_u16<1>(v) ? "mma/pfb_u16.cuh" : nullptr;
}
