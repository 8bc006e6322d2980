var z={zh:"zh-b5340f2ee0.json"};export{z as a};
