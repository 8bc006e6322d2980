var z={zh:"zh-7daf23b1a3.json"};export{z as a};
