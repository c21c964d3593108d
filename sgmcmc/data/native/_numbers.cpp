// Random numbers: goes on with the stream of NumPy's SFC64 generator, and makes normals and row numbers
// of it. All is integers and single IEEE operations in a fixed order, so NumPy gives the same bits
// (sgmcmc/data/numbers.py has the same in NumPy, and says what each step is). The compiler must not
// fuse multiplications with additions: -ffp-contract=off.

#define Py_LIMITED_API 0x030A0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <cmath>
#include <cstdint>
#include <cstring>

// The same code for several generations of processors; the loader takes the best that there is.
#if defined(__x86_64__) && defined(__gnu_linux__) && defined(__GNUC__) && !defined(__clang__)
#define FOR_EACH_PROCESSOR __attribute__((target_clones("default", "avx2", "avx512f")))
#else
#define FOR_EACH_PROCESSOR
#endif

namespace {

constexpr int kPairs = 256;  // normals are made in chunks of so many pairs

// Four words: three of state, and a counter.
struct Sfc64 {
  std::uint64_t a, b, c, counter;

  explicit Sfc64(const std::uint64_t* s) : a(s[0]), b(s[1]), c(s[2]), counter(s[3]) {}

  void Store(std::uint64_t* s) const {
    s[0] = a;
    s[1] = b;
    s[2] = c;
    s[3] = counter;
  }

  std::uint64_t Next() {
    const std::uint64_t sum = a + b + counter++;
    a = b ^ (b >> 11);
    b = c + (c << 3);
    c = ((c << 24) | (c >> 40)) + sum;
    return sum;
  }

  // The lower half of each word comes first, as in memory.
  void Fill(std::uint32_t* out, std::int64_t count) {
    for (std::int64_t i = 0; i < count; i += 2) {
      const std::uint64_t word = Next();
      out[i] = static_cast<std::uint32_t>(word);
      out[i + 1] = static_cast<std::uint32_t>(word >> 32);
    }
  }
};

float AsFloat(std::int32_t bits) {
  float x;
  std::memcpy(&x, &bits, sizeof x);
  return x;
}

std::int32_t AsBits(float x) {
  std::int32_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  return bits;
}

FOR_EACH_PROCESSOR
void BoxMuller(const std::uint32_t* bits, float* out) {
  for (int i = 0; i < kPairs; ++i) {
    const std::uint32_t first = bits[i], second = bits[kPairs + i];
    const float whole = static_cast<float>(static_cast<std::int32_t>(first >> 1));
    const float part = static_cast<float>(static_cast<std::int32_t>(second & 0xFF));
    const float u = (whole + (part + 0.5f) * 0x1p-8f) * 0x1p-31f;

    const std::int32_t shifted = AsBits(u) + (0x3F800000 - 0x3F3504F3);
    const float exponent = static_cast<float>((shifted >> 23) - 127);
    const float f = AsFloat((shifted & 0x007FFFFF) + 0x3F3504F3) - 1.0f;
    float q = 0.08979528f * f + -0.1442688f;
    q = q * f + 0.14883684f;
    q = q * f + -0.16551788f;
    q = q * f + 0.19963478f;
    q = q * f + -0.25002584f;
    q = q * f + 0.33333933f;
    q = q * f + -0.49999982f;
    const float log_u = (q * f * f + f) + exponent * 0.6931472f;
    const float radius = std::sqrt(log_u * -2.0f);

    const std::int32_t turn = static_cast<std::int32_t>((second >> 8) & 0x3FFFFF);
    const float t = (static_cast<float>(turn - 0x200000) + 0.5f) * 3.7450704e-07f;
    const float s = t * t;
    const float sine =
        ((-0.000195173f * s + 0.008332178f) * s + -0.16666655f) * s * t + t;
    const float cosine =
        ((2.4438452e-05f * s + -0.0013887368f) * s + 0.041666646f) * s * s + (s * -0.5f + 1.0f);
    const float x = radius * cosine, y = radius * sine;
    const float x_signed = AsFloat(AsBits(x) ^ static_cast<std::int32_t>(second & 0x80000000u));
    const bool swap = (second & 0x40000000u) != 0;
    out[i] = swap ? y : x_signed;
    out[kPairs + i] = swap ? x_signed : y;
  }
}

void Normals(std::uint64_t* state, float* out, std::int64_t count) {
  Sfc64 source(state);
  std::uint32_t bits[2 * kPairs];
  float last[2 * kPairs];
  for (std::int64_t at = 0; at < count; at += 2 * kPairs) {
    const std::int64_t left = count - at;
    source.Fill(bits, 2 * kPairs);
    if (left >= 2 * kPairs) {
      BoxMuller(bits, out + at);
    } else {
      BoxMuller(bits, last);
      std::memcpy(out + at, last, static_cast<std::size_t>(left) * sizeof(float));
    }
  }
  source.Store(state);
}

FOR_EACH_PROCESSOR
void Scale(const std::uint32_t* bits, std::int32_t* out, std::int64_t count, std::uint32_t below,
           std::uint32_t least) {
  for (std::int64_t i = 0; i < count; ++i) {
    const std::uint64_t product = static_cast<std::uint64_t>(bits[i]) * below;
    const std::int32_t whole = static_cast<std::int32_t>(product >> 32);
    out[i] = static_cast<std::uint32_t>(product) < least ? -1 : whole;
  }
}

void Below(std::uint64_t* state, std::int32_t* out, std::int64_t count, std::uint32_t below) {
  constexpr std::int64_t kMost = 1024;
  Sfc64 source(state);
  std::uint32_t bits[kMost];
  const std::uint32_t least = (0u - below) % below;
  for (std::int64_t at = 0; at < count; at += kMost) {
    const std::int64_t some = count - at < kMost ? count - at : kMost;
    source.Fill(bits, some);
    Scale(bits, out + at, some, below, least);
  }
  source.Store(state);
}

PyObject* NormalsOf(PyObject*, PyObject* args) {
  unsigned long long state, out;
  long long count;
  if (!PyArg_ParseTuple(args, "KKL", &state, &out, &count)) return nullptr;
  Py_BEGIN_ALLOW_THREADS;
  Normals(reinterpret_cast<std::uint64_t*>(state), reinterpret_cast<float*>(out), count);
  Py_END_ALLOW_THREADS;
  Py_RETURN_NONE;
}

PyObject* BelowOf(PyObject*, PyObject* args) {
  unsigned long long state, out;
  long long count;
  unsigned int below;
  if (!PyArg_ParseTuple(args, "KKLI", &state, &out, &count, &below)) return nullptr;
  Py_BEGIN_ALLOW_THREADS;
  Below(reinterpret_cast<std::uint64_t*>(state), reinterpret_cast<std::int32_t*>(out), count, below);
  Py_END_ALLOW_THREADS;
  Py_RETURN_NONE;
}

PyMethodDef kMethods[] = {
    {"normals", NormalsOf, METH_VARARGS,
     "normals(state, out, count): standard normals in float32; the addresses of a state of SFC64, "
     "which is moved on, and of the numbers."},
    {"below", BelowOf, METH_VARARGS,
     "below(state, out, count, below): int32 from 0 to below - 1, and -1 for those to be drawn "
     "again."},
    {nullptr, nullptr, 0, nullptr}};

PyModuleDef kModule = {PyModuleDef_HEAD_INIT, "_numbers", nullptr, -1, kMethods,
                       nullptr, nullptr, nullptr, nullptr};

}  // namespace

PyMODINIT_FUNC PyInit__numbers() { return PyModule_Create(&kModule); }
