// Data for nets/data.prototxt: the same numbers come from a file, from memory, and from a thread that reads ahead; and images
// for nets/opencv/images.prototxt.
#ifndef NUMBERS_HPP_
#define NUMBERS_HPP_

#include <fstream>
#include <string>
#include <vector>

#include "caffe/caffe.hpp"
#include "caffe/layers/base_data_layer.hpp"
#include "caffe/layers/memory_data_layer.hpp"
#include "caffe/util/hdf5.hpp"

namespace {

const int kItems = 40, kSide = 16;

// The i-th number.
inline float number(unsigned i) { return static_cast<float>((i * 7919) % 1009) / 1009; }

inline void fill(float* data, float* labels, int items, int first) {
    for (int i = 0; i < items * kSide * kSide; ++i) data[i] = number(first * kSide * kSide + i);
    for (int i = 0; i < items; ++i) labels[i] = static_cast<float>((first + i) % 10);
}

// For HDF5Data: numbers.h5, and numbers.txt that names it.
void write_numbers() {
    caffe::Blob<float> data(kItems, 1, kSide, kSide), labels(std::vector<int>(1, kItems));
    fill(data.mutable_cpu_data(), labels.mutable_cpu_data(), kItems, 0);
    const hid_t file = H5Fcreate("numbers.h5", H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    caffe::hdf5_save_nd_dataset(file, "data", data);
    caffe::hdf5_save_nd_dataset(file, "label", labels);
    H5Fclose(file);
    std::ofstream("numbers.txt") << "numbers.h5\n";
}

// For ImageData: images of 40 by 48 in colour, and images.txt that names them with their labels.
void write_images() {
    const int height = 40, width = 48;
    std::ofstream list("images.txt");
    for (int i = 0; i < kItems; ++i) {
        const std::string name = "image" + std::to_string(i) + ".ppm";
        std::ofstream image(name, std::ios::binary);
        image << "P6\n" << width << " " << height << "\n255\n";
        for (int j = 0; j < 3 * height * width; ++j) {
            image.put(static_cast<char>(static_cast<unsigned char>(255 * number(i * 101 + j))));
        }
        list << name << " " << i % 10 << "\n";
    }
}

// For MemoryData: `numbers` has to outlive the net's runs.
void feed(caffe::Net<float>* net, std::vector<float>& numbers) {
    for (const auto& layer : net->layers()) {
        caffe::MemoryDataLayer<float>* memory = dynamic_cast<caffe::MemoryDataLayer<float>*>(layer.get());
        if (!memory) continue;
        const int items = 3 * memory->batch_size();
        numbers.resize(items * (kSide * kSide + 1));
        fill(numbers.data(), numbers.data() + items * kSide * kSide, items, 11);
        memory->Reset(numbers.data(), numbers.data() + items * kSide * kSide, items);
    }
}

#ifndef USE_OPENCV
// On what Data, ImageData and WindowData rest in Caffe: a thread that reads ahead. It goes by ImageData's name, which a Caffe
// without OpenCV does not have.
template <typename Dtype>
class NumbersLayer : public caffe::BasePrefetchingDataLayer<Dtype> {
  public:
    explicit NumbersLayer(const caffe::LayerParameter& param) : caffe::BasePrefetchingDataLayer<Dtype>(param), first_(0) {}
    ~NumbersLayer() { this->StopInternalThread(); }
    void DataLayerSetUp(const std::vector<caffe::Blob<Dtype>*>&, const std::vector<caffe::Blob<Dtype>*>& top) {
        const int items = this->layer_param_.image_data_param().batch_size();
        const std::vector<int> data = {items, 1, kSide, kSide}, labels = {items};
        top[0]->Reshape(data);
        top[1]->Reshape(labels);
        for (auto& batch : this->prefetch_) {
            batch->data_.Reshape(data);
            batch->label_.Reshape(labels);
        }
    }
    const char* type() const { return "ImageData"; }

  protected:
    void load_batch(caffe::Batch<Dtype>* batch) {
        const int items = batch->data_.shape(0);
        Dtype* data = batch->data_.mutable_cpu_data();
        Dtype* labels = batch->label_.mutable_cpu_data();
        for (int i = 0; i < batch->data_.count(); ++i) data[i] = number(first_ * kSide * kSide + i);
        for (int i = 0; i < items; ++i) labels[i] = (first_ + i) % 10;
        first_ += items;
    }

  private:
    int first_;
};

#endif  // USE_OPENCV

}  // namespace

#ifndef USE_OPENCV
namespace caffe {
template <typename Dtype>
shared_ptr<Layer<Dtype> > MakeNumbers(const LayerParameter& param) {
    return shared_ptr<Layer<Dtype> >(new NumbersLayer<Dtype>(param));
}
REGISTER_LAYER_CREATOR(ImageData, MakeNumbers);
}  // namespace caffe
#endif  // USE_OPENCV

#endif  // NUMBERS_HPP_
